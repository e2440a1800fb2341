"""`load_decoder`: from a checkpoint to a decoder that can run."""

from collections.abc import Sequence

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.device.model.decoder import Decoder
from ratoon.device.model.weights import WeightReader
from ratoon.device.ops.protocol import KVPages, Layer, Ops
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.model_spec import ModelSpec
from ratoon.util.progress import Progress, no_progress


def load_decoder(
    checkpoint: Checkpoint,
    spec: ModelSpec,
    groups: Sequence[CacheGroupSpec],
    ops: Ops,
    pages: KVPages,
    *,
    num_positions: int | None = None,
    progress: Progress = no_progress,
) -> Decoder:
    """Check all tensors, then pack them layer by layer.

    Each layer stands in exactly one group; its place there is its slot in the pages. All groups share the
    pages. `num_positions` (the model's context if None) bounds the positions that will ever be run. Raises
    `UnsupportedModelError` or `CorruptCheckpointError`, before any weight is packed.
    """
    reader = WeightReader(checkpoint, spec, ops, num_positions=num_positions or spec.max_context)
    places = {
        layer: (group, slot)
        for group, members in enumerate(groups)
        for slot, layer in enumerate(members.layers)
    }
    assert sorted(places) == list(range(spec.num_layers)), "each layer stands in one cache group"
    table, head = reader.embedding(), reader.head()
    described = [
        (reader.attention(layer, group=places[layer][0], slot=places[layer][1]), reader.feed_forward(layer))
        for layer in range(spec.num_layers)
    ]
    layers = []
    for done, (attention, feed_forward) in enumerate(described):
        progress("Loading weights", done, spec.num_layers)
        layers.append(Layer(ops.attention(attention, pages), ops.feed_forward(feed_forward)))
    decoder = Decoder(ops, ops.embedding(table, spec.embedding_scale), layers, ops.lm_head(head))
    progress("Loading weights", spec.num_layers, spec.num_layers)
    return decoder
