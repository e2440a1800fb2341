"""Low-rank adapters in NumPy float32."""

from collections.abc import Sequence

from ratoon.device.ops.dequantize import tensor_values
from ratoon.device.ops.protocol import AdapterRows, AdapterSpan, AdapterWeights, Floats, LowRank
from ratoon.device.ops.reference_functions import Product


class ReferencePair:
    """One weight's part of an adapter."""

    def __init__(self, pair: LowRank, scale: float) -> None:
        self._a = Product(tensor_values(pair.a))
        self._b = Product(tensor_values(pair.b))
        self._scale = scale

    def __call__(self, x: Floats) -> Floats:
        """Return what comes to the weight's own product of rows [n, in]: [n, out]."""
        return self._b(self._a(x) * self._scale)


class ReferenceAdapter:
    """An adapter; `layers` has the pairs of each layer by target."""

    def __init__(self, weights: AdapterWeights) -> None:
        self.layers = [
            {target: ReferencePair(pair, weights.scale) for target, pair in layer.items()}
            for layer in weights.layers
        ]


class ReferenceAdapterRows:
    """The adapters of a step's rows."""

    def __init__(self, spans: Sequence[AdapterSpan]) -> None:
        self._spans = spans

    def add(self, out: Floats, x: Floats, layer: int, target: str) -> None:
        """Add to `out` [n, out], the product of `x` [n, in] with a weight, what its rows' adapters add."""
        for span in self._spans:
            assert isinstance(span.adapter, ReferenceAdapter), "an adapter of another implementation"
            if pair := span.adapter.layers[layer].get(target):
                out[span.first : span.end] += pair(x[span.first : span.end])


NO_ADAPTERS = ReferenceAdapterRows(())


def reference_rows(adapters: AdapterRows | None) -> ReferenceAdapterRows:
    """Return what was made by these ops, or what does nothing."""
    if adapters is None:
        return NO_ADAPTERS
    assert isinstance(adapters, ReferenceAdapterRows), "adapters of another implementation"
    return adapters
