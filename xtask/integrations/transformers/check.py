"""Checks how `syncline reshard run` splits tiny models of every family.

For each model and number of ranks, the ranks run side by side in transformers' own modules: each has the
tensors of its file, what split layers compute is added up or put together, and the logits must be those
of the whole model. Which layers are split which way must agree with the plan of the model's class.

Usage: check.py SYNCLINE FOLDER [MODEL ...]
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch
import transformers
from safetensors.torch import load_file

import zoo

RANKS = (2, 3, 4, 8)
# Stages and experts: nothing is computed, what each rank holds is compared with the names.
OTHERS = ("pp=2", "tp=2,pp=2", "ep=2", "tp=2,ep=2")

# Families of which blocks stay whole, with the sizes in configurations that this leaves alone.
HEADS = set("num_attention_heads n_head n_heads num_heads num_key_value_heads num_kv_heads".split())
INNER = set("intermediate_size moe_intermediate_size shared_intermediate_size".split())
WHOLE = {name: HEADS for name in "olmo2 olmo3 olmoe flex_olmo minimax_m2 diffllama codegen stablelm-norm jetmoe".split()}
WHOLE |= {"bitnet": HEADS | INNER, "mamba": HEADS | INNER, "mamba2": HEADS | INNER, "deberta-v2": HEADS}
# Models of which only the embeddings and the output are split.
UNSPLIT = {"mamba", "mamba2", "bitnet"}
# What a family cannot do, in the words of the refusal.
REFUSED = {
    ("qwen3_next", "tp=8"): "parts of groups", ("qwen3_5_text", "tp=8"): "parts of groups",
    ("qwen3_5_moe_text", "tp=8"): "parts of groups", ("falcon-new", "tp=8"): "parts of groups",
}


def convert(syncline, source, target, layout):
    """Runs the conversion; returns the refusal, if it is one."""
    shutil.rmtree(target, ignore_errors=True)
    run = subprocess.run([syncline, "reshard", "run", source, target, "--to", layout], capture_output=True, text=True)
    if run.returncode == 0:
        return None
    assert run.returncode == 2 and not os.path.exists(target), run.stderr
    return run.stderr.strip()


def part(count, parts, at):
    base, more = divmod(count, parts)
    return base + (at < more)


class Share:
    """What a rank has, worked out here without the program's help."""

    def __init__(self, query, key_value, ranks, rank):
        group = query // key_value
        if ranks <= key_value:
            self.key_value = part(key_value, ranks, rank)
            self.query = self.key_value * group
            self.first = sum(part(key_value, ranks, before) for before in range(rank)) * group
        else:
            around, at = divmod(rank, ranks // key_value)
            self.key_value, self.query = 1, part(group, ranks // key_value, at)
            self.first = around * group + sum(part(group, ranks // key_value, before) for before in range(at))
        self.ranks, self.rank = ranks, rank

    def of(self, count):
        return part(count, self.ranks, self.rank)


class Group:
    """Ranks as threads that wait for each other wherever one of their layers is split."""

    def __init__(self, ranks):
        self.barrier, self.slots = threading.Barrier(ranks), [None] * ranks

    def all(self, rank, value):
        self.slots[rank] = value
        self.barrier.wait(60)
        values = list(self.slots)
        self.barrier.wait(60)
        return values


def heads_of(config, name):
    """Numbers of query and key-value heads."""
    text = config.get_text_config() if hasattr(config, "text_config") else config
    get = lambda names: next((getattr(text, key) for key in names.split() if isinstance(getattr(text, key, None), int)), None)
    query = get("num_attention_heads n_head n_heads num_heads encoder_attention_heads attention_heads")
    key_value = get("num_key_value_heads num_kv_heads n_kv_heads") or query
    kind = config.model_type
    if kind == "dbrx":
        key_value = config.attn_config.kv_n_heads
    if kind == "falcon" and not config.new_decoder_architecture:
        key_value = 1 if config.multi_query else query
    if kind == "gpt_bigcode":
        key_value = 1 if config.multi_query else query
    if kind == "jetmoe":
        key_value = query
    return query or 1, key_value or 1


def local_config(config, name, share):
    """The configuration by which transformers makes a model of a rank's sizes."""
    keep = WHOLE.get(name, set())
    config = copy.deepcopy(config)

    def visit(config, is_tower):
        sizes = {}
        for key in list(vars(config)) + list(type(config).attribute_map):
            value = getattr(config, key, None)
            if hasattr(value, "model_type") or key in ("attn_config", "ffn_config"):
                if not isinstance(value, dict):
                    visit(value, is_tower or "vision" in key)
                continue
            if key in keep or not isinstance(value, (int, list)) or isinstance(value, bool):
                continue
            if key in zoo.NAMES["heads"]:
                sizes[key] = share.of(value) if is_tower else share.query
            elif key in zoo.NAMES["key_value"]:
                sizes[key] = share.of(value) if is_tower else share.key_value
            elif key in zoo.NAMES["inner"]:
                sizes[key] = [share.of(each) for each in value] if isinstance(value, list) else share.of(value)
            elif key == "vocab_size":
                sizes[key] = share.of(value)
            elif key == "linear_num_key_heads":
                sizes[key] = share.of(value)
                sizes["linear_num_value_heads"] = share.of(value) * (config.linear_num_value_heads // value)
        if "head_dim" not in type(config).attribute_map and not isinstance(getattr(type(config), "head_dim", None), property):
            if not is_tower or "head_dim" in vars(config):
                sizes.setdefault("head_dim", getattr(config, "head_dim", None) or zoo.HEAD)
        for key, size in sizes.items():
            setattr(config, key, size)

    visit(config, False)
    return config


def load(folder, config, auto):
    """A model with all of a file's tensors and no others, or why it cannot be had."""
    config._experts_implementation = "eager"
    with open(os.path.join(folder, "generation_config.json"), "w") as file:
        file.write("{}")
    model, info = auto.from_pretrained(folder, config=config, output_loading_info=True, dtype=torch.float32,
                                       attn_implementation="eager")
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    wrong.pop("unexpected_keys", None)
    return (model.eval(), None) if not wrong else (None, json.dumps(wrong)[:300])


# Names in files, and in the modules of classes that rename what they load.
PICTURES = [(r"^language_model\.lm_head\.", "lm_head."), (r"^language_model\.model\.", "model.language_model."),
            (r"^(vision_tower|multi_modal_projector)\.", r"model.\1.")]
QWEN = [(r"^model\.", "model.language_model."), (r"^visual\.", "model.visual.")]
VIT = [(r"^encoder\.layer\.", "layers."), (r"attention\.attention\.(.)[a-z]*\.", r"attention.\1_proj."),
       (r"attention\.output\.dense", "attention.o_proj"), (r"intermediate\.dense", "mlp.fc1"), (r"(\d)\.output\.dense", r"\1.mlp.fc2")]
RENAMES = {"llava": PICTURES, "mistral3": PICTURES, "gemma3": PICTURES, "qwen2_vl": QWEN, "qwen2_5_vl": QWEN, "vit": VIT}


def renamed(name, key):
    for pattern, text in RENAMES.get(name, []):
        key = re.sub(pattern, text, key)
    return key


ATTRIBUTES = {
    "query": "num_heads num_attention_heads n_heads n_head",
    "key_value": "num_kv_heads num_key_value_heads",
    "width": "all_head_size embed_dim split_size hidden_size inner_dim attention_head_size_all",
}


def patched(whole, tensors, share):
    """A copy of the whole model with a rank's tensors, for classes that take no sizes of heads."""
    model = copy.deepcopy(whole)
    left = dict(tensors)
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        if name not in tensors:
            continue
        owner, leaf = name.rsplit(".", 1) if "." in name else ("", name)
        module = model.get_submodule(owner)
        local = left.pop(name, tensors[name])
        if local.shape == parameter.shape:
            continue
        setattr(module, leaf, torch.nn.Parameter(local.clone(), requires_grad=False))
        for attribute, dim in (("nf", -1), ("out_features", 0), ("in_features", 1), ("num_embeddings", 0)):
            if hasattr(module, attribute) and leaf == "weight":
                setattr(module, attribute, local.shape[dim])
        if leaf == "w1":
            model.get_submodule(owner.rpartition(".")[0]).ffn_hidden_size = share.of(zoo.INNER)
        while owner:
            owner = owner.rpartition(".")[0]
            parent = model.get_submodule(owner)
            is_tower = hasattr(whole.config, "text_config") and "vision" in owner
            if re.search("atten|attn", type(parent).__name__, re.I) and not is_tower:
                adapt(parent, share)
    model.tie_weights()
    # A tensor that finds no place would let the whole model's stand in for it.
    tied = {name for name in left if name.startswith(("lm_head.", "embed_out."))}
    lost = set(left) - tied - {key for key, _ in model.named_buffers()}
    if lost:
        raise ValueError(f"no place for {sorted(lost)[:3]}")
    return model


def adapt(module, share):
    """Tells an attention module how many heads it has; once."""
    if getattr(module, "adapted", False):
        return
    module.adapted = True
    head = getattr(module, "head_dim", None) or getattr(module, "attention_head_size", None) or getattr(module, "head_size", zoo.HEAD)
    sizes = {"query": share.query, "key_value": share.key_value, "width": share.query * head}
    for what, names in ATTRIBUTES.items():
        for name in names.split():
            if isinstance(getattr(module, name, None), int):
                setattr(module, name, sizes[what])
    if hasattr(module, "num_key_value_groups"):
        module.num_key_value_groups = share.query // share.key_value


def linked(model, whole, share, group):
    """Makes split layers add up or put together what all ranks compute; returns which way each is split."""
    kinds = {}
    full = dict(whole.named_parameters(remove_duplicate=False))
    output = model.get_output_embeddings()
    for path, module in model.named_modules():
        own = {key: value for key, value in module.named_parameters(prefix=path, recurse=False, remove_duplicate=False)}
        split = {key: value for key, value in own.items() if key in full and value.shape != full[key].shape}
        if not split:
            continue
        weight = path + ".weight"
        if isinstance(module, torch.nn.Embedding):
            if module.weight.shape[0] != full[weight].shape[0]:
                tokens(module, full[weight].shape[0], share, group)
            continue
        if module is output:
            module.register_forward_hook(lambda _, __, out: torch.cat(group.all(share.rank, out), -1))
            continue
        if weight in split and isinstance(module, (torch.nn.Linear, transformers.pytorch_utils.Conv1D)):
            inputs = 1 if isinstance(module, torch.nn.Linear) else 0
            is_row = module.weight.shape[inputs] != full[weight].shape[inputs]
            kinds[path] = "rowwise" if is_row else "colwise"
            if is_row and module.weight.shape[1 - inputs] != full[weight].shape[1 - inputs]:
                raise ValueError(f"{path} is split both ways")
        else:
            is_row = any(value.dim() == 3 or re.search(r"\.w2$", key) for key, value in split.items())
            is_row = is_row and not path.endswith(("conv1d", "conv", "input_linear"))
            for key, value in split.items():
                dims = [dim for dim, (one, other) in enumerate(zip(value.shape, full[key].shape)) if one != other]
                kinds[key] = dims
        if is_row:
            for key, value in own.items():
                if share.rank > 0 and "bias" in key and key not in split:
                    value.data.zero_()
            module.register_forward_hook(lambda _, __, out: sum(group.all(share.rank, out)))
    return kinds


def tokens(module, count, share, group):
    first = sum(part(count, share.ranks, before) for before in range(share.rank))
    inner = module.forward

    def forward(ids):
        is_own = (ids >= first) & (ids < first + module.weight.shape[0])
        found = inner((ids - first).clamp(0, module.weight.shape[0] - 1)) * is_own[..., None]
        return sum(group.all(share.rank, found))

    module.forward = forward


def alibi(model, share):
    """Cuts the biases of positions to a rank's heads: models make them for all heads."""
    kind, rows = model.config.model_type, slice(share.first, share.first + share.query)

    def cut(full):
        if full is None or full.shape[0] == zoo.HEADS:
            return full if full is None else full[rows]
        if full.dim() == 4:
            return full[:, rows]
        return full.view(-1, zoo.HEADS, *full.shape[1:])[:, rows].flatten(0, 1)

    def before(_, args, kwargs):
        mask = kwargs.get("attention_mask")
        if kind == "falcon" and mask is not None and mask.dim() == 4:
            kwargs["attention_mask"] = mask[:, rows] if mask.shape[1] == zoo.HEADS else mask
        if "alibi" in kwargs:
            kwargs["alibi"] = cut(kwargs["alibi"])
        elif kind == "falcon":
            args = (args[0], cut(args[1]), *args[2:])
        elif "position_bias" in kwargs:
            kwargs["position_bias"] = cut(kwargs["position_bias"])
        return args, kwargs

    if kind in ("bloom", "falcon", "mpt") and share.query < zoo.HEADS:
        for layer in getattr(model.transformer, "h", None) or model.transformer.blocks:
            attention = getattr(layer, "self_attention", None) or layer.attn
            attention.register_forward_pre_hook(before, with_kwargs=True)


def run(model):
    """The logits, or what comes nearest, for fixed inputs."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, zoo.VOCABULARY, (2, 7), generator=generator)
    config, name = model.config, model.config.model_type
    pixels = torch.randn(2, 3, 8, 8, generator=generator)
    if "pixel_values" in (model.main_input_name,):
        return tensor_of(model(pixel_values=pixels))
    if name in ("clip", "siglip"):
        out = model(input_ids=ids, pixel_values=pixels)
        return torch.cat([out.text_embeds, out.image_embeds], -1)
    if name == "whisper":
        features = torch.randn(2, config.num_mel_bins, 128, generator=generator)
        return tensor_of(model(input_features=features, decoder_input_ids=ids))
    if config.is_encoder_decoder:
        return tensor_of(model(input_ids=ids, decoder_input_ids=ids))
    return tensor_of(model(input_ids=ids, use_cache=False))


def tensor_of(out):
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def ranks_of(name, whole, folder, ranks):
    """A model for each rank, and which way its layers are split."""
    query, key_value = heads_of(whole.config, name)
    group, models, kinds = Group(ranks), [], {}
    auto = zoo.class_of(whole.config)
    for rank in range(ranks):
        share = Share(query, key_value, ranks, rank)
        place = os.path.join(folder, f"load{rank}")
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        os.link(os.path.join(folder, f"rank-{rank:05}.safetensors"), os.path.join(place, "model.safetensors"))
        model, why = None, ""
        if name not in PATCHED:
            try:
                model, why = load(place, local_config(whole.config, name, share), auto)
            except Exception as error:
                why = repr(error)[:300]
        if model is None:
            try:
                tensors = load_file(os.path.join(place, "model.safetensors"))
                tensors = {renamed(name, key): value for key, value in tensors.items()}
                model = patched(whole, tensors, share)
            except Exception as error:
                raise RuntimeError(f"{why}; {error!r}")
            model.why = why
        kinds = linked(model, whole, share, group)
        alibi(model, share)
        models.append(model)
    return group, models, kinds


PATCHED = set("gpt2 gptj gpt_neo gpt_neox gpt_neox_japanese gpt_bigcode gpt_bigcode-mha bloom mpt falcon falcon-new falcon-rw opt bart mbart "
              "pegasus whisper bert roberta electra xlm-roberta vit clip siglip clip_vision_model siglip_vision_model modernbert "
              "persimmon biogpt xglm distilbert albert dbrx".split())


def side_by_side(group, models):
    outputs, errors = [None] * len(models), []

    def work(rank):
        try:
            with torch.no_grad():
                outputs[rank] = run(models[rank])
        except Exception as error:
            if not isinstance(error, threading.BrokenBarrierError):
                errors.append(error)
            group.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(models))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if errors:
        raise errors[0]
    return outputs


def agree(plan, kinds, prefix=""):
    """Where the plan of transformers splits a layer otherwise; what it splits and stays whole here."""
    wrong, whole = [], []
    for pattern, way in (plan or {}).items():
        # Of a layer whose output is gathered at once, nothing follows for what comes after it.
        want = {"colwise": "colwise", "rowwise": "rowwise"}.get(way)
        if want is None:
            continue
        shape = re.compile("(^|.*\\.)" + re.escape(pattern).replace("\\*", r"\d+") + "$")
        found = {path: kind for path, kind in kinds.items() if shape.match(path)}
        wrong += [f"{path}: {kind}, not {way}" for path, kind in found.items() if isinstance(kind, str) and kind != want]
        if not found:
            whole.append(pattern)
    return wrong, whole


def names_of(folder):
    return {rank: set(load_file(os.path.join(folder, file)))
            for rank, file in enumerate(sorted(file for file in os.listdir(folder) if file.startswith("rank-")))}


def placed(layout, folder, source):
    """Stages hold runs of layers, experts are on one rank each, and nothing is lost."""
    held, names = names_of(folder), set(load_file(os.path.join(source, "model.safetensors")))
    everywhere = set().union(*held.values())
    if not names <= everywhere:
        return f"lost: {sorted(names - everywhere)[:3]}"
    tp = 2 if "tp=2" in layout else 1
    halves = [set().union(*(held[rank] for rank in range(at * tp, (at + 1) * tp))) for at in range(2)]
    if "pp" in layout:
        for at, half in enumerate(halves):
            if not half - halves[1 - at]:
                return f"stage {at} has nothing of its own"
    if "ep" in layout:
        expert = re.compile(r"experts\.\d+\.")
        both = [name for name in halves[0] & halves[1] if expert.search(name)]
        if both:
            return f"on both: {both[:3]}"
    return None


def examine(name, syncline, folder):
    """What holds of the model `name`, as lines; the first word says whether it is right."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    lines, whole = [], zoo.model_of(name)
    source = os.path.join(folder, name, "in")
    whole.save_pretrained(source)
    with torch.no_grad():
        expected = run(whole)
    plan = getattr(whole.config.get_text_config(), "base_model_tp_plan", None)
    for ranks in RANKS:
        layout, target = f"tp={ranks}", os.path.join(folder, name, f"tp{ranks}")
        refusal = convert(syncline, source, target, layout)
        if refusal is not None:
            is_known = REFUSED.get((name, layout), "\0") in refusal
            lines.append(("refused" if is_known else "WRONG", layout, refusal[:300]))
            continue
        models = []
        try:
            group, models, kinds = ranks_of(name, whole, target, ranks)
            outputs = side_by_side(group, models)
        except Exception as error:
            import traceback
            if os.environ.get("TRACE"):
                traceback.print_exc()
            why = getattr(models[0], "why", "") if models else ""
            lines.append(("WRONG", layout, f"{type(error).__name__}: {error} ({why})"[:600]))
            continue
        off = max((output - expected).abs().max().item() for output in outputs)
        wrong, kept = agree(plan, kinds)
        if off > 2e-4 * max(1, expected.abs().max().item()) or off != off or wrong:
            lines.append(("WRONG", layout, f"logits off by {off:.3g} of {expected.abs().max().item():.3g}; {wrong} {getattr(models[0], 'why', '')}"))
        elif not kinds and name not in UNSPLIT:
            lines.append(("WRONG", layout, "no layer is split"))
        else:
            lines.append(("right", layout, f"{len(kinds)} layers split" + (f", whole: {' '.join(kept)}" if kept else "")))
        shutil.rmtree(target)
    for layout in OTHERS:
        target = os.path.join(folder, name, "other")
        refusal = convert(syncline, source, target, layout)
        if refusal is not None:
            lines.append(("refused", layout, refusal[:160]))
            continue
        cause = placed(layout, target, source)
        lines.append(("WRONG", layout, cause) if cause else ("right", layout, "placed"))
    shutil.rmtree(os.path.join(folder, name))
    return lines


def main():
    syncline, folder, *names = sys.argv[1:]
    names = names or [name for name, more in zoo.ZOO.items() if more is not None]
    failed = 0
    with ProcessPoolExecutor(min(2, len(names))) as pool:
        work = {pool.submit(examine, name, syncline, folder): name for name in names}
        for done in as_completed(work):
            try:
                lines = done.result()
            except Exception as error:
                lines = [("WRONG", "", f"{type(error).__name__}: {error}"[:300])]
            for state, layout, words in lines:
                failed += state == "WRONG"
                print(f"{state:8}{work[done]:24}{layout:12}{words}", flush=True)
    print(f"{len(names)} models, {failed} wrong")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
