"""The native attention: near the reference, and the same bits however its rows come together."""

from dataclasses import dataclass, replace
from itertools import pairwise

import gguf
import numpy as np
import pytest
from gguf import quants
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.native import NativeOps, available_variants, emulated_variants
from ratoon.device.ops.protocol import AttentionWeights, Floats, KVLayout, Ops, Rope, StepInputs
from ratoon.device.ops.reference import ReferenceOps
from ratoon.device.ops.reference_attention import ReferencePages

RNG = np.random.default_rng(3)
HIDDEN = 64
MAX_CONTEXT = 700
VARIANTS = [*available_variants(), *emulated_variants()]


def stored(dtype: str, rows: int, columns: int) -> RawTensor:
    values = RNG.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(columns))
    data = quants.quantize(values, gguf.GGMLQuantizationType[dtype])
    return RawTensor("w", (rows, columns), dtype, memoryview(np.ascontiguousarray(data).tobytes()))


def scaled(tensor: RawTensor, factor: float) -> RawTensor:
    values = np.frombuffer(tensor.data, np.float32) * np.float32(factor)
    return replace(tensor, source=memoryview(values.tobytes()))


def weights_of(
    dtype: str = "F32", *, heads: int = 4, kv_heads: int = 2, dim: int = 32, interleaved: bool = False
) -> AttentionWeights:
    """Return a plain block with a norm and nothing optional."""
    angles = np.outer(np.arange(MAX_CONTEXT), 10000.0 ** -np.linspace(0, 1, dim // 2))
    return AttentionWeights(
        norm=RNG.uniform(0.5, 1.5, HIDDEN).astype(np.float32),
        qkv=tuple(stored(dtype, n * dim, HIDDEN) for n in (heads, kv_heads, kv_heads)),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        out=stored(dtype, HIDDEN, heads * dim),
        post_norm=None,
        eps=1e-5,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        scale=dim**-0.5,
        softcap=0.0,
        window=None,
        rope=Rope(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved),
        group=0,
        slot=1,
    )


def with_everything(w: AttentionWeights) -> AttentionWeights:
    """Add all that is optional."""
    return replace(
        w,
        qkv_bias=RNG.standard_normal((w.num_heads + 2 * w.num_kv_heads) * w.head_dim, dtype=np.float32),
        q_norm=RNG.uniform(0.5, 1.5, w.head_dim).astype(np.float32),
        k_norm=RNG.uniform(0.5, 1.5, w.head_dim).astype(np.float32),
        post_norm=RNG.uniform(0.5, 1.5, HIDDEN).astype(np.float32),
        softcap=3.0,
        window=150,
    )


PLAIN = weights_of()
EVERYTHING = with_everything(weights_of(interleaved=True))
CASES = {
    "plain": PLAIN,
    "everything": EVERYTHING,
    "narrow window": replace(PLAIN, window=5),
    "one KV head": weights_of(heads=6, kv_heads=1),
    "as many KV heads": weights_of(heads=3, kv_heads=3),
    "rope on half the head": replace(
        PLAIN, rope=Rope(PLAIN.rope.cos[:, :8].copy(), PLAIN.rope.sin[:, :8].copy(), False)
    ),
    **{f"heads of {dim}": weights_of(heads=2, kv_heads=1, dim=dim) for dim in (8, 24, 64, 80, 96, 128, 256)},
}


@dataclass(frozen=True)
class Part:
    """Positions [first, last) of one sequence, to be run in one step."""

    sequence: int
    first: int
    last: int


class Run:
    """Sequences with inputs and block tables of their own, run through one block part by part."""

    def __init__(
        self,
        ops: Ops,
        weights: AttentionWeights,
        *,
        lengths: tuple[int, ...],
        block_size: int = 16,
        kv_dtype: str = "int16",
        fill: int = 0,
        tables: NDArray[np.int32] | None = None,
    ) -> None:
        rng = np.random.default_rng(9)
        self.inputs = [rng.standard_normal((n, HIDDEN), dtype=np.float32) for n in lengths]
        width = -(-max(lengths) // block_size)
        num_blocks = 1 + width * len(lengths)
        shuffled = 1 + rng.permutation(num_blocks - 1).astype(np.int32)
        self.tables = shuffled.reshape(len(lengths), width) if tables is None else tables
        self._ops, self._block_size = ops, block_size
        layout = KVLayout(num_blocks, block_size, 2, weights.num_kv_heads, weights.head_dim, kv_dtype)
        self.pages = ops.pages(layout)
        self.pages.pages[:] = fill
        self._block = ops.attention(weights, self.pages)

    def step(self, *parts: Part, write: bool = True) -> list[Floats]:
        """Return the rows of each part."""
        positions = np.concatenate([np.arange(p.first, p.last, dtype=np.int32) for p in parts])
        lengths = [p.last - p.first for p in parts]
        cu_seqlens = np.cumsum([0, *lengths]).astype(np.int32)
        tables = self.tables[[p.sequence for p in parts]]
        owners = np.repeat(np.arange(len(parts)), lengths)
        blocks, offsets = np.divmod(positions, self._block_size)
        slots = tables[owners, blocks].astype(np.int64) * self._block_size + offsets
        rows = np.concatenate([self.inputs[p.sequence][p.first : p.last] for p in parts])
        step = StepInputs(positions, cu_seqlens, (tables,), (slots if write else np.full_like(slots, -1),))
        self._block(rows, begun := self._ops.begin(step))
        self.shared_blocks = [
            (shared.group, list(shared.sequences), shared.num_blocks)
            for shared in self._ops.shared_blocks(begun)
        ]
        return np.split(rows, cu_seqlens[1:-1])

    def attended(self) -> Floats:
        """Return what attention adds to the rows of the first sequence."""
        return self.whole()[0] - self.inputs[0]

    def whole(self) -> list[Floats]:
        """Return all rows of each sequence, each run alone and at once."""
        return [self.step(Part(i, 0, len(x)))[0] for i, x in enumerate(self.inputs)]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("kv_dtype", "tolerance"), [("f32", 3e-5), ("int16", 2e-3)])
@pytest.mark.parametrize("case", CASES)
def test_attention_is_that_of_the_reference(variant: str, case: str, kv_dtype: str, tolerance: float) -> None:
    native = Run(NativeOps(2, variant), CASES[case], lengths=(300, 17), kv_dtype=kv_dtype).whole()
    reference = Run(ReferenceOps(), CASES[case], lengths=(300, 17), kv_dtype=kv_dtype).whole()
    for found, expected in zip(native, reference, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["Q4_0", "Q4_1", "Q8_0", "F16", "BF16"])
def test_quantised_attention_is_near_the_reference(variant: str, dtype: str) -> None:
    weights = weights_of(dtype)
    native = Run(NativeOps(2, variant), weights, lengths=(200,))
    reference = Run(ReferenceOps(), weights, lengths=(200,))
    expected, found = reference.attended(), native.attended()
    assert np.linalg.norm(found - expected) <= 0.03 * np.linalg.norm(expected)


@pytest.mark.parametrize("block_size", [1, 3, 8, 16, 32, 64])
@pytest.mark.parametrize("case", ["plain", "everything", "heads of 80", "heads of 24"])
def test_bits_do_not_depend_on_the_block_size(variant: str, case: str, block_size: int) -> None:
    ops = NativeOps(2, variant)
    found = Run(ops, CASES[case], lengths=(200, 130), block_size=block_size).whole()
    expected = Run(ops, CASES[case], lengths=(200, 130), block_size=16).whole()
    assert [rows.tobytes() for rows in found] == [rows.tobytes() for rows in expected]


@pytest.mark.parametrize("kv_dtype", ["int16", "f32"])
@pytest.mark.parametrize("case", CASES)
def test_bits_do_not_depend_on_chunks_nor_on_company(variant: str, case: str, kv_dtype: str) -> None:
    lengths = (300, 300, 140, 20)
    ops = NativeOps(2, variant)
    whole = Run(ops, CASES[case], lengths=lengths, kv_dtype=kv_dtype).whole()
    run = Run(ops, CASES[case], lengths=lengths, kv_dtype=kv_dtype, fill=0xFF)  # numbers that are none
    chunks: list[list[Floats]] = [[] for _ in lengths]
    rng = np.random.default_rng(1)
    done = [0] * len(lengths)
    while any(done[i] < n for i, n in enumerate(lengths)):
        parts = []
        for i in rng.permutation(len(lengths)):
            size = min(int(rng.choice([0, 1, 2, 7, 40, 130])), lengths[i] - done[i])
            if size:
                parts.append(Part(int(i), done[i], done[i] + size))
                done[i] += size
        if parts:
            for part, rows in zip(parts, run.step(*parts), strict=True):
                chunks[part.sequence].append(rows)
    for pieces, expected in zip(chunks, whole, strict=True):
        assert np.concatenate(pieces).tobytes() == expected.tobytes()


@pytest.mark.parametrize("case", ["plain", "everything"])
def test_bits_do_not_depend_on_the_number_of_threads(variant: str, case: str) -> None:
    found = set()
    for num_threads in (1, 2, 3, 5):
        run = Run(NativeOps(num_threads, variant), CASES[case], lengths=(650, 300))
        prefill = run.step(Part(0, 0, 640), Part(1, 0, 290))
        decode = run.step(Part(0, 640, 650), Part(1, 290, 291))
        found.add(b"".join(rows.tobytes() for rows in prefill + decode))
    assert len(found) == 1


@pytest.mark.parametrize("case", ["plain", "everything", "one KV head"])
def test_sequences_that_share_blocks_get_the_bits_of_copies(variant: str, case: str) -> None:
    lengths, shared = (420, 330, 401, 330, 275), 256
    ops = NativeOps(2, variant)
    own = Run(ops, CASES[case], lengths=lengths)
    for inputs in own.inputs[1:]:
        inputs[:shared] = own.inputs[0][:shared]
    tables = own.tables.copy()
    tables[:, : shared // 16] = tables[0, : shared // 16]
    sharing = Run(ops, CASES[case], lengths=lengths, tables=tables)
    sharing.inputs = own.inputs
    for first, last in pairwise((0, 256, 272, 273, 274, 275)):
        parts = [Part(i, first, last) for i in range(len(lengths))]
        expected = own.step(*parts)
        # The shared part is computed once, the rest by all of them.
        found = sharing.step(*parts[: 1 if last <= shared else None])
        for a, b in zip(found, expected, strict=False):
            assert a.tobytes() == b.tobytes()
    parts = [Part(i, 275, n) for i, n in enumerate(lengths) if n > 275]
    own.step(*parts)
    sharing.step(*parts)
    last_rows = [Part(i, n - 1, n) for i, n in enumerate(lengths)]
    for order in (last_rows, last_rows[::-1], last_rows[2:4]):
        for a, b in zip(sharing.step(*order, write=False), own.step(*order, write=False), strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_step_says_who_read_which_blocks_together(variant: str) -> None:
    """Three have the blocks of the first 256 positions, two of them the next 128; the last is on its own."""
    lengths = (400, 390, 300, 280)
    run = Run(NativeOps(2, variant), PLAIN, lengths=lengths)
    run.tables[:3, :16] = run.tables[0, :16]
    run.tables[1, :24] = run.tables[0, :24]
    run.step(*(Part(i, n - 1, n) for i, n in enumerate(lengths)), write=False)
    shared = [(group, sorted(sequences), count) for group, sequences, count in run.shared_blocks]
    assert sorted(shared) == [(0, [0, 1], 8), (0, [0, 1, 2], 16)]
    run.step(Part(3, 279, 280), Part(1, 389, 390), write=False)
    assert run.shared_blocks == []


def test_sequences_whose_windows_begin_at_different_blocks_read_alone(variant: str) -> None:
    run = Run(NativeOps(1, variant), replace(PLAIN, window=60), lengths=(400, 400, 400))
    run.tables[:] = run.tables[0]
    run.step(Part(0, 380, 381), Part(1, 380, 381), Part(2, 300, 301), write=False)
    assert run.shared_blocks == [(0, [0, 1], 4)]  # positions 321 to 380


def test_a_row_that_writes_nothing_reads_what_is_there(variant: str) -> None:
    run = Run(NativeOps(2, variant), PLAIN, lengths=(50,))
    whole = run.whole()[0]
    before = run.pages.pages.copy()
    again = run.step(Part(0, 49, 50), write=False)[0]
    assert again.tobytes() == whole[-1:].tobytes()
    assert run.pages.pages.tobytes() == before.tobytes()


def test_a_page_holds_a_block_wherever_it_is_copied_to(variant: str) -> None:
    run = Run(NativeOps(2, variant), PLAIN, lengths=(100, 100))
    whole = run.whole()
    run.pages.pages[run.tables[1]] = run.pages.pages[run.tables[0]]
    run.inputs[1] = run.inputs[0]
    assert run.step(Part(1, 99, 100))[0].tobytes() == whole[0][-1:].tobytes()


def test_blocks_behind_the_window_are_not_read(variant: str) -> None:
    run = Run(NativeOps(2, variant), EVERYTHING, lengths=(400,))
    expected = run.step(Part(0, 0, 396))[0][-1:], run.step(Part(0, 396, 400))[0]
    behind = (396 - 149) // 16
    run.pages.pages[run.tables[0, :behind]] = 0xFF
    run.tables[0, :behind] = 0
    assert run.step(Part(0, 396, 400))[0].tobytes() == expected[1].tobytes()


def test_variants_that_share_their_numerics_share_their_bits() -> None:
    for case in CASES.values():
        found = set()
        for name in VARIANTS:
            ops = NativeOps(2, name)
            run = Run(ops, case, lengths=(200, 40))
            found.add((ops.numerics, run.whole()[0].tobytes() + run.pages.pages.tobytes()))
        assert len(found) == len({numerics for numerics, _ in found})


def test_keys_and_values_of_any_size_keep_their_precision(variant: str) -> None:
    large = replace(PLAIN, qkv_bias=np.full((4 + 2 + 2) * 32, 1e6, np.float32))
    qkv = tuple(scaled(tensor, 1e-12) for tensor in PLAIN.qkv)
    small = replace(PLAIN, qkv=qkv, out=scaled(PLAIN.out, 1e12))
    for weights, size in ((large, 1e6), (small, 1)):
        native, reference = (
            Run(ops, weights, lengths=(20,)).attended() for ops in (NativeOps(1, variant), ReferenceOps())
        )
        assert np.isfinite(native).all()
        np.testing.assert_allclose(native, reference, rtol=0, atol=1e-3 * size)


@pytest.mark.parametrize("kv_dtype", ["int16", "f32"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_reaches_those_who_see_it_and_nobody_else(
    variant: str, kv_dtype: str, bad: float
) -> None:
    for case in ("plain", "everything", "heads of 80"):
        run = Run(NativeOps(2, variant), CASES[case], lengths=(200, 40), kv_dtype=kv_dtype)
        sound = run.step(Part(0, 0, 200), Part(1, 0, 40))
        run.inputs[0][100, 3] = bad
        found = run.step(Part(0, 0, 200), Part(1, 0, 40))
        assert found[0][:100].tobytes() == sound[0][:100].tobytes()
        assert found[1].tobytes() == sound[1].tobytes()
        assert np.isnan(found[0][100:]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("element", [4 * 32, 6 * 32])  # the first of a key, and of a value
def test_an_element_that_is_no_number_makes_no_number(variant: str, element: int, bad: float) -> None:
    bias = np.zeros((4 + 2 + 2) * 32, np.float32)
    bias[element] = bad
    found = Run(NativeOps(1, variant), replace(PLAIN, qkv_bias=bias), lengths=(20,)).whole()[0]
    assert np.isnan(found).all()


@pytest.mark.parametrize("block_size", [16, 3])
@pytest.mark.parametrize("fill", [0xFF, 0x7F, 0x80])  # as integers and scales: none, large, small
def test_what_lies_behind_the_last_key_does_not_matter(variant: str, block_size: int, fill: int) -> None:
    ops = NativeOps(2, variant)
    for case in ("plain", "everything", "heads of 24"):
        found, expected = (
            Run(ops, CASES[case], lengths=(150, 37), block_size=block_size, fill=byte).whole()
            for byte in (fill, 0)
        )
        assert [rows.tobytes() for rows in found] == [rows.tobytes() for rows in expected]


@pytest.mark.parametrize("block_size", [16, 5])
def test_a_page_holds_integers_in_pairs_and_their_scales(variant: str, block_size: int) -> None:
    """Both ops store the same vectors, each in its own order."""
    weights, dim = PLAIN, PLAIN.head_dim
    native, reference = (
        Run(ops, weights, lengths=(block_size,), block_size=block_size)
        for ops in (NativeOps(1, variant), ReferenceOps())
    )
    native.whole()
    reference.whole()
    pieces = native.pages.pages[1].reshape(2, 2, -1)[weights.slot]
    for kv_head, piece in enumerate(pieces):
        keys, values = np.split(piece[: 4 * dim * block_size].view(np.int16), 2)
        assert isinstance(reference.pages, ReferencePages)
        for found, stored, scales in zip(
            (deinterleaved(keys, dim).T, deinterleaved(values, block_size)),
            reference.pages.slot(weights.slot),
            piece[4 * dim * block_size :].view(np.float32).reshape(2, block_size),
            strict=True,
        ):
            np.testing.assert_allclose(found, stored["elements"][1, :, kv_head], rtol=0, atol=1)
            np.testing.assert_allclose(scales, stored["scale"][1, :, kv_head], rtol=1e-6)


def deinterleaved(rows_of_pairs: NDArray[np.int16], num_rows: int) -> NDArray[np.int16]:
    """Return the matrix of which every two rows were interleaved."""
    rows = rows_of_pairs.reshape(num_rows, -1)
    pairs = rows[: num_rows // 2 * 2].reshape(num_rows // 2, -1, 2)
    return np.concatenate([*pairs.transpose(0, 2, 1), rows[num_rows // 2 * 2 :]])
