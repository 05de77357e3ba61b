"""The oracle of sampling against `transformers`: the same penalty to the bit, and the same tokens kept."""

import numpy as np
import pytest

from ticktrue.graph import oracle_sampling as oracle


@pytest.mark.torch
def test_transformers_keeps_the_same_tokens_and_penalizes_the_same():
    import torch
    from transformers.generation import logits_process as hf

    for seed in range(20):
        raw = (np.random.default_rng(seed).standard_normal(300) * 3).astype(np.float32)
        scores, ids = torch.tensor(raw)[None], torch.tensor([[3, 9, 9, 120]])
        want = hf.RepetitionPenaltyLogitsProcessor(1.3)(ids, scores.clone())[0].numpy()
        assert (oracle.penalized(raw, ids[0].tolist(), (), (1.3, 0.0, 0.0)) == want).all()
        for cut, warp in (
            ((7, 1.0, 0.0), hf.TopKLogitsWarper(7)),
            ((0, 0.6, 0.0), hf.TopPLogitsWarper(0.6)),
            ((0, 1.0, 0.07), hf.MinPLogitsWarper(0.07)),
        ):
            kept = torch.isfinite(warp(ids, scores.clone())[0]).nonzero()[:, 0].tolist()
            assert sorted(oracle.filtered(raw, *cut)) == kept
