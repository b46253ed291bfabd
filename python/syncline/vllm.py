"""vLLM: the weight-transfer backend ``syncline``, for engines and trainers.

An engine that is started with ``weight_transfer_config={"backend": "syncline"}`` and the ranks of a
trainer form one group. At the start each worker learns where its own loader puts the elements of
each tensor (``learn_layout``); from then on an update moves what trainer ranks hold straight to its
places in the parameters of the workers, fused ones too. A tensor of which a loader makes something
else than copies is sent whole and loaded by vLLM, and the log names it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from vllm.distributed.weight_transfer.base import (
    ParamMeta,
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    WeightSource,
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
    materialize_full_tensor,
)

from . import _native
from ._dtensor import layout_from_dtensors, local_of, whole
from ._dtypes import name_of_torch, torch_dtype
from ._learn import LearnedLayout, entry, learn_layout
from .errors import GroupError
from .torch import tcp_address

__all__ = [
    "Engine", "InitInfo", "ShardedSource", "Trainer", "TrainerInfo", "UpdateInfo", "register",
]  # fmt: skip

logger = logging.getLogger("vllm.syncline")


def register() -> None:
    """Registers the backend with vLLM; the entry point in ``vllm.general_plugins`` calls it."""
    from vllm.distributed.weight_transfer.factory import (
        WeightTransferEngineFactory,
        WeightTransferTrainerFactory,
    )

    for factory, name in [
        (WeightTransferEngineFactory, "Engine"), (WeightTransferTrainerFactory, "Trainer"),
    ]:  # fmt: skip
        if "syncline" not in factory._registry:
            factory.register_engine("syncline", "syncline.vllm", name)


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """What a worker is told once: where to meet, and what will be sent."""

    address: str
    trainers: int
    size: int
    #: Name, element type and shape of each tensor.
    tensors: list[tuple[str, str, list[int]]]
    token: str | None = field(default=None, repr=False)
    timeout: float = 120.0


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """What a worker is told before each update."""

    version: int


@dataclass
class TrainerInfo(TrainerInitInfo):  # type: ignore[misc]
    """What each trainer rank says: how many ranks and workers there are, and where they meet.

    ``workers`` counts those of all engines and data-parallel replicas. Without an address the first
    rank picks one of its host, and tells the others through torch's process group.
    """

    backend: ClassVar[str] = "syncline"

    workers: int
    trainers: int = 1
    address: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout: float = 120.0


class ShardedSource(WeightSource):  # type: ignore[misc]
    """The tensors of a trainer as its ranks hold them: DTensors, or plain ones held by all.

    Names are those of the checkpoint that the engine loads.
    """

    def __init__(self, tensors: torch.nn.Module | Mapping[str, torch.Tensor]) -> None:
        self._given = tensors

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the tensors by name, with what this rank holds of each."""
        if isinstance(self._given, torch.nn.Module):
            return dict(self._given.named_parameters())
        return dict(self._given)

    def metadata(self) -> list[ParamMeta]:
        """Returns name, element type and whole shape of each tensor."""
        found = self.tensors().items()
        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in found]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self.tensors().items():
            yield name, materialize_full_tensor(tensor)


def _held(source: WeightSource) -> dict[str, torch.Tensor] | None:
    """Returns what this rank holds of each tensor, if the source says."""
    tensors = getattr(source, "tensors", None)
    if callable(tensors):
        return dict(tensors())
    module = getattr(source, "_module", None)
    return dict(module.named_parameters()) if isinstance(module, torch.nn.Module) else None


def gather(group: _native.Group, mine: bytes, timeout: float) -> list[bytes]:
    """Returns what each rank of the group gives."""
    copies = group.copy_service()

    def exchange(sent: np.ndarray[Any, Any], sizes: Sequence[int]) -> list[Any]:
        received = [np.zeros(size, np.uint8) for size in sizes]
        for rank in range(group.size):
            copies.submit_send(sent, rank)
            copies.submit_recv(received[rank], rank)
        copies.run(timeout=timeout)
        return received

    size = np.array([len(mine)], np.int64).view(np.uint8)
    sizes = [int(one.view(np.int64)[0]) for one in exchange(size, [8] * group.size)]
    # A rank with nothing to say sends one byte: there are no empty tensors.
    padded = np.frombuffer(mine + b" ", np.uint8)
    return [bytes(one)[:-1] for one in exchange(padded, [size + 1 for size in sizes])]


def _said(learned: LearnedLayout) -> dict[str, Any]:
    """Returns what other ranks have to know of what one has learned."""
    places = {
        name: [
            [learned.parameters[place.parameter][0], place.counts, place.pieces()]
            for place in places
        ]
        for name, places in learned.places.items()
    }
    return {"places": places, "opaque": learned.opaque, "unused": learned.unused}


class Route:
    """The two layouts of an update, alike on every rank.

    A tensor that a worker has in several places has an entry for each of them.
    """

    def __init__(self, source: _native.Layout, trainers: int, workers: list[Any]) -> None:
        self.trainers = trainers
        self.whole = sorted({name for worker in workers for name in worker["opaque"]})
        before, after = [], []
        self.tensor_of: dict[str, str] = {}
        for name in source.names:
            dtype, shape = source.spec(name)
            held = [
                (rank, list(local), [
                    ([a for a, _ in box], [b - a for a, b in box], list(start))
                    for box, start in source.pieces(name, rank)
                ])
                for rank in range(trainers)
                if (local := source.local_shape(name, rank)) is not None
            ]  # fmt: skip
            for called, kind, shards in self._targets(name, dtype, shape, workers):
                self.tensor_of[called] = name
                before.append((called, dtype, list(shape), held))
                after.append((called, kind, list(shape), shards))
        self.before = _native.Layout._from_shards(before)
        self.after = _native.Layout._from_shards(after)

    def _targets(
        self, name: str, dtype: str, shape: Sequence[int], workers: list[Any]
    ) -> Iterator[tuple[str, str, list[Any]]]:
        ranks = range(self.trainers, self.trainers + len(workers))
        if name in self.whole:
            yield name, dtype, whole(shape, ranks)
            return
        places = [worker["places"][name] for worker in workers]
        for number in range(max(len(of_rank) for of_rank in places)):
            shards: dict[str, list[Any]] = {}
            for rank, of_rank in zip(ranks, places):
                if number < len(of_rank):
                    kind, counts, pieces = of_rank[number]
                    shards.setdefault(kind, []).append((rank, counts, pieces))
            for kind, held in shards.items():
                called = entry(name, number)
                yield (called if len(shards) == 1 else f"{called}:{kind}"), kind, held

    def sources(self, held: Mapping[str, Any], rank: int) -> dict[str, Any]:
        """Returns this rank's tensors by the names of the entries."""
        return {
            called: local_of(held[name])
            for called, name in self.tensor_of.items()
            if self.before.local_shape(called, rank) is not None
        }


def _route(group: _native.Group, mine: Any, trainers: int, timeout: float) -> Route:
    said = gather(group, json.dumps(mine).encode(), timeout)
    source = _native.Layout.from_json(json.loads(said[0]))
    return Route(source, trainers, [json.loads(text) for text in said[trainers:]])


class Engine(WeightTransferEngine):  # type: ignore[misc]
    """The side of a worker: receives its shards into its parameters."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.group: _native.Group | None = None
        self.form: Any = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Joins the group, learns the layout of this worker, and prepares updates."""
        from vllm.config import set_current_vllm_config

        from ._reload import ModelForm

        self.shutdown()
        parallel = self.parallel_config
        rank = parallel.data_parallel_index * parallel.world_size + parallel.rank
        rank += init_info.trainers
        timeout = init_info.timeout
        self.group = _native.join(
            init_info.address, rank, init_info.size, token=init_info.token, timeout=timeout
        )
        specs = {name: (dtype, tuple(shape)) for name, dtype, shape in init_info.tensors}
        self.form = ModelForm(self.model)
        with set_current_vllm_config(self.vllm_config), self.form.lent() as (parameters, live):
            self.learned = learn_layout(self._loader(parameters, live), specs, as_torch=True)
        self.form.check(self.learned)
        self.route = _route(self.group, _said(self.learned), init_info.trainers, timeout)
        for name in self.route.whole:
            reason = self.learned.opaque.get(name, "another worker transforms it")
            logger.warning("syncline: `%s` is sent whole: %s", name, reason)
        if self.learned.unused:
            logger.info("syncline: no parameter has %s", ", ".join(self.learned.unused))
        if self.learned.unexplained:
            names = ", ".join(self.learned.unexplained)
            raise GroupError(f"it is not known what vLLM's loader writes to {names}")
        self.refit = self.group.prepare(self.route.before, self.route.after, convert=True)

    def _loader(self, parameters: Mapping[str, torch.Tensor], live: set[str]) -> Any:
        def load(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            for name, tensor in parameters.items():
                # What keeps these values is not loaded.
                if tensor.is_floating_point():
                    tensor.data.fill_(float("nan"))
                elif name not in live:
                    tensor.data.random_(0, 2)
            self.model.load_weights(tensors.items())
            return parameters

        return load

    def start_weight_update(self) -> None:
        """Makes parameters in the form that is loaded; the live ones stay as they are."""
        if self.form is None:
            raise GroupError("init_weight_transfer_engine comes before the first update")
        self.parameters = self.form.open()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receives one update. There is nothing to synchronise: memory is the host's."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Receives what the trainer ranks send, into the parameters."""
        assert self.group is not None and self.form is not None
        try:
            self.form.prefill(self.learned)
            targets = self._targets()
            self.refit.run({}, targets, version=update_info.version)
        except BaseException:
            # The live parameters have not been touched.
            self.form.discard()
            raise
        if self.route.whole:
            self.model.load_weights((name, targets[name]) for name in self.route.whole)

    def _targets(self) -> dict[str, torch.Tensor]:
        assert self.group is not None
        targets = {}
        for called, name in self.route.tensor_of.items():
            if self.route.after.local_shape(called, self.group.rank) is None:
                continue
            if name in self.route.whole:
                dtype, shape = self.learned.tensors[name]
                targets[called] = torch.empty(shape, dtype=torch_dtype(dtype))
                continue
            number = int(called[len(name) :].partition(":")[0].removeprefix("#") or 0)
            place = self.learned.places[name][number]
            targets[called] = place.view(self.parameters[place.parameter].data)
        return targets

    def finish_weight_update(self) -> None:
        """Makes of the parameters what the engine computes with, in the live memory."""
        assert self.form is not None
        self.form.commit(self.learned, self.model_config)

    def shutdown(self) -> None:
        """Leaves the group."""
        if self.group is not None:
            self.group.close()
            self.group = None


class Trainer(TrainerWeightTransferEngine[TrainerInfo]):  # type: ignore[misc]
    """The side of a trainer: each of its ranks sends what it holds."""

    init_info_cls = TrainerInfo

    def __init__(self, info: TrainerInfo, client: Any, source: WeightSource) -> None:
        super().__init__(client=client, source=source, is_sender=info.is_sender)
        self.info = info
        self.version = 0
        held = _held(source)
        self.is_sharded = held is not None
        if not self.is_sharded and info.is_sender:
            logger.warning("syncline: %s gives whole tensors: rank 0 sends them all", source)
        address, size = _address(info), info.trainers + info.workers
        metadata = source.metadata()
        tensors = [(one.name, name_of_torch(one.dtype), list(one.shape)) for one in metadata]
        told = InitInfo(address, info.trainers, size, tensors, info.token, info.timeout)
        with _Calls() as calls:
            if self.is_sender:
                calls.submit(client.init_weight_transfer_engine, asdict(told))
            self.group = _native.join(
                address, info.rank, size, token=info.token, timeout=info.timeout
            )
            layout = _trainer_layout(held, tensors, info.trainers)
            mine = json.loads(layout.to_json()) if info.rank == 0 else None
            self.route = _route(self.group, mine, info.trainers, info.timeout)
        self.refit = self.group.prepare(self.route.before, self.route.after, convert=True)

    @classmethod
    def trainer_init(
        cls, init_info: TrainerInfo, *, client: Any, source: WeightSource | None = None
    ) -> Trainer:
        """Meets the workers; every trainer rank calls it."""
        if source is None:
            raise ValueError("the backend syncline needs a WeightSource: see ShardedSource")
        return cls(init_info, client, source)

    def send_weights(self) -> None:
        """Sends the weights as they are now; every trainer rank calls it."""
        held = _held(self.source)
        if held is None:
            is_kept = self.info.rank == 0
            # Every rank takes part in gathering them.
            held = {name: tensor for name, tensor in self.source if is_kept}
        sources = self.route.sources(held, self.info.rank)
        self.version += 1
        if self.is_sender:
            self.client.start_weight_update()
        with _Calls() as calls:
            if self.is_sender:
                calls.submit(self.client.update_weights, asdict(UpdateInfo(self.version)))
            self.stats = self.refit.run(sources, {}, version=self.version)
        if self.is_sender:
            self.client.finish_weight_update()

    def shutdown(self) -> None:
        """Leaves the group."""
        self.group.close()


class _Calls:
    """A call to the engine that goes on beside what this rank does; its error comes first."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.call: Any = None

    def submit(self, *call: Any) -> None:
        self.call = self.pool.submit(*call)

    def __enter__(self) -> _Calls:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # After an error the call may never return.
        self.pool.shutdown(wait=False)
        if self.call is not None and (error is None or self.call.done()):
            self.call.result()


def _address(info: TrainerInfo) -> str:
    """Returns where to meet, which rank 0 decides if nobody has said."""
    if info.address is not None:
        return info.address
    chosen = [tcp_address("vllm") if info.is_sender else ""]
    if info.trainers > 1:
        if not dist.is_initialized():
            raise GroupError("address: without torch's process group each rank has to be told")
        dist.broadcast_object_list(chosen, src=0)
    return chosen[0]


def _trainer_layout(
    held: dict[str, torch.Tensor] | None, tensors: Sequence[tuple[str, str, list[int]]], ranks: int
) -> _native.Layout:
    if held is None:
        made = [(name, dtype, shape, whole(shape, [0])) for name, dtype, shape in tensors]
        return _native.Layout._from_shards(made)
    layout = layout_from_dtensors(held)
    if layout.world > ranks:
        text = f"the tensors lie on {layout.world} ranks: trainers={ranks} is too few"
        raise GroupError(text)
    return layout
