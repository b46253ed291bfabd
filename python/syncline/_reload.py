"""The parameters of a model of vLLM in the form that is loaded.

After loading, vLLM may pack parameters for its kernels and drop them. Its reloading keeps of each
layer what they were: that form is made anew here, filled, and processed as after loading, into the
memory that the engine computes with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from vllm.model_executor.model_loader.reload.layerwise import (
    _get_original_loader,
    _layerwise_process,
    _place_kernel_tensors,
    finalize_layerwise_reload,
    get_layerwise_info,
    initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.meta import materialize_layer
from vllm.model_executor.model_loader.reload.utils import get_layer_tensors

from ._learn import LearnedLayout
from .errors import LayoutError


def _is_attention(layer: Any) -> bool:
    from vllm.model_executor.layers.attention import is_deferred_attention_layer

    return bool(is_deferred_attention_layer(layer))


class ModelForm:
    """A model whose parameters can be opened in the form that is loaded."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns all parameters and buffers by name."""
        found = dict(self.model.named_parameters(remove_duplicate=False))
        found.update(self.model.named_buffers(remove_duplicate=False))
        return {name: tensor for name, tensor in found.items() if not tensor.is_meta}

    def open(self) -> dict[str, torch.Tensor]:
        """Makes memory for everything that is loaded, and returns it by name."""
        with torch.no_grad():
            self._open()
        return self.tensors()

    def _open(self) -> None:
        initialize_layerwise_reload(self.model)
        for layer in self.model.modules():
            info = get_layerwise_info(layer)
            if not info.can_load():
                continue
            materialize_layer(layer, info)
            for tensor in get_layer_tensors(layer).values():
                tensor.weight_loader = _get_original_loader(tensor)

    def discard(self) -> None:
        """Puts the live parameters back as they were."""
        for layer in self.model.modules():
            info = get_layerwise_info(layer)
            if info.can_load() and info.kernel_tensors is not None:
                _place_kernel_tensors(layer, info)
            info.reset()

    @contextlib.contextmanager
    def lent(self) -> Iterator[tuple[dict[str, torch.Tensor], set[str]]]:
        """Opens the form for experiments, after which the model is as before.

        Yields all tensors, and the names of those that have no other form: the live ones.
        """
        live = {tensor.data_ptr() for tensor in self.tensors().values()}
        opened = self.open()
        shared = {name for name, tensor in opened.items() if tensor.data_ptr() in live}
        kept = {name: opened[name].detach().clone() for name in shared}
        try:
            yield opened, shared
        finally:
            with torch.no_grad():
                for name, value in kept.items():
                    opened[name].data.copy_(value)
            self.discard()

    def layers(self, learned: LearnedLayout) -> dict[str, set[str]]:
        """Returns the names of layers that are written, with their tensors."""
        written = {place.parameter for places in learned.places.values() for place in places}
        written.update(name for names in learned.affects.values() for name in names)
        found: dict[str, set[str]] = {}
        for name in written:
            layer, _, tensor = name.rpartition(".")
            found.setdefault(layer, set()).add(tensor)
        return found

    def check(self, learned: LearnedLayout) -> None:
        """Refuses what cannot be written without vLLM's loader."""
        placed = {place.parameter for places in learned.places.values() for place in places}
        for name in sorted(placed):
            layer = self.model.get_submodule(name.rpartition(".")[0])
            if _is_attention(layer):
                raise LayoutError(f"`{name}` is processed together with the KV cache")

    def prefill(self, learned: LearnedLayout) -> None:
        """Writes what no tensor is loaded to: padding, and what stays as it is."""
        opened = {name: tensor.data for name, tensor in self.tensors().items()}
        for name, boxes in learned.constants.items():
            for box, value in boxes:
                opened[name][box] = value
        written = self.layers(learned)
        for name in learned.unwritten:
            path, _, tensor = name.rpartition(".")
            if path not in written:
                continue
            layer = self.model.get_submodule(path)
            kernel = get_layerwise_info(layer).kernel_tensors
            live = {**kernel[0], **kernel[1]}.get(tensor) if kernel is not None else None
            if live is None or live.shape != opened[name].shape:
                raise LayoutError(f"`{name}` is loaded in part, and the rest is gone")
            if live.data_ptr() != opened[name].data_ptr():
                opened[name].copy_(live.data)

    def commit(self, learned: LearnedLayout, model_config: Any) -> None:
        """Processes what was written as after loading, into the live memory."""
        with torch.no_grad():
            self._commit(learned, model_config)

    def _commit(self, learned: LearnedLayout, model_config: Any) -> None:
        paths = set(self.layers(learned))
        touched: set[int] = set()
        rest = []
        for path, layer in self.model.named_modules():
            info = get_layerwise_info(layer)
            if not info.can_load() or _is_attention(layer):
                continue
            kernel = info.kernel_tensors
            if path in paths:
                _layerwise_process(layer, info)
                touched |= _pointers(kernel)
            elif kernel is not None:
                _place_kernel_tensors(layer, info)
                info.reset()
                rest.append((layer, kernel))
        finalize_layerwise_reload(self.model, model_config)
        for layer, kernel in rest:
            # A head that is tied to the embedding has packed it for itself.
            method = getattr(layer, "quant_method", None)
            if method is not None and touched & _pointers(kernel):
                method.process_weights_after_loading(layer)


def _pointers(kernel: tuple[Mapping[str, Any], Mapping[str, Any]] | None) -> set[int]:
    if kernel is None:
        return set()
    found = {tensor.data_ptr() for part in kernel for tensor in part.values()}
    return found - {0}
