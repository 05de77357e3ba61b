"""Packed narrow shards: every weight once, partials in K order, little waste."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ticktrue.place import Matrix, pack

MATRICES = st.lists(st.tuples(st.integers(1, 700), st.integers(1, 700)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(MATRICES, st.sampled_from([80, 160]))
def test_every_weight_lies_in_exactly_one_place(shapes: list[tuple[int, int]], depth: int) -> None:
    matrices = tuple(Matrix(i, k, 0, n) for i, (k, n) in enumerate(shapes))
    packed = pack(matrices, depth)
    seen: set[tuple[int, int, int]] = set()
    end = 0
    for tile in packed.tiles:
        assert tile.vector == end
        end += tile.per_row * tile.rows
        lanes: set[int] = set()
        for p in tile.pieces:
            assert p.rows <= tile.rows
            own = set(range(p.lane, p.lane + p.cols))
            assert not own & lanes
            assert max(own) < 160 * tile.per_row <= 320
            lanes |= own
            assert p.column == p.record * 320 + p.to_lane
            for c in range(p.column, p.column + p.cols):
                key = (p.matrix, p.k_tile, c)
                assert key not in seen
                seen.add(key)
    wanted = {(m, t, c) for m, (k, n) in enumerate(shapes) for t in range(-(-k // depth)) for c in range(n)}
    assert seen == wanted
    assert packed.vectors == end


@settings(max_examples=60, deadline=None)
@given(MATRICES)
def test_partials_of_a_record_are_numbered_in_ascending_k(shapes: list[tuple[int, int]]) -> None:
    packed = pack(tuple(Matrix(i, k, 0, n) for i, (k, n) in enumerate(shapes)), 160)
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for tile in packed.tiles:
        for p in tile.pieces:
            found.setdefault((p.matrix, p.record), []).append((p.partial, p.k_tile))
    for (m, r), numbers in found.items():
        ordered = sorted(numbers)
        assert [n for n, _ in ordered] == list(range(packed.partials[m][r]))
        assert [k for _, k in ordered] == sorted(k for _, k in ordered)


def test_smollm2_layer_stores_little_more_than_it_needs() -> None:
    """All phases of one SmolLM2 layer at 8 chips: stored / needed bytes, counted with every padded lane and row."""
    phases = [
        (Matrix(0, 576, 0, 72), Matrix(1, 576, 0, 24), Matrix(2, 576, 0, 24)),
        (Matrix(0, 576, 0, 72),),
        (Matrix(0, 576, 0, 192), Matrix(1, 576, 0, 192)),
        (Matrix(0, 1536, 0, 72),),
    ]
    stored = sum(pack(p, 160).vectors * 320 for p in phases)
    needed = sum(m.inputs * m.count * 2 for p in phases for m in p)
    assert stored / needed < 1.12
