import math
from importlib.util import find_spec

import pytest
import torch

import ruler
from ruler.core.errors import InputError

pytestmark = pytest.mark.skipif(not find_spec("torchmetrics"), reason="needs the extra torchmetrics")


@pytest.fixture
def metric():
    from ruler.hooks.torchmetrics import PercentileRank

    return PercentileRank()


@pytest.fixture
def batches(rows):
    """Three batches of forget and retain records; the last one has no forget records."""
    is_forget = torch.arange(len(rows)) % 5 == 0
    is_forget[160:] = False
    return list(zip(torch.as_tensor(rows).split(80), is_forget.split(80), strict=True))


def measure(batches):
    rows, is_forget = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return ruler.m4(rows[is_forget], rows[~is_forget])


def test_batches_give_m4_of_all_rows(metric, batches):
    for batch in batches:
        metric.update(*batch)
    assert metric.compute().dtype == torch.float64
    assert metric.compute().item() == measure(batches)
    metric.reset()
    metric.update(*batches[0])
    assert metric.compute().item() == measure(batches[:1])


def test_the_order_of_batches_does_not_matter(metric, batches):
    for batch in reversed(batches):
        metric.update(*batch)
    assert metric.compute().item() == pytest.approx(measure(batches), abs=1e-15)


def test_forward_gives_the_value_of_a_batch_and_nan_where_it_has_none(metric, batches):
    assert metric(*batches[0]).item() == measure(batches[:1])
    assert math.isnan(metric(*batches[2]))
    assert metric.compute().item() == measure([batches[0], batches[2]])


def test_it_stands_beside_other_metrics_in_a_collection(metric, batches):
    from torchmetrics import MetricCollection
    from torchmetrics.aggregation import MeanMetric

    collection = MetricCollection({"m4": metric, "loss": MeanMetric()})
    for embeddings, is_forget in batches:
        collection.update(embeddings=embeddings, is_forget=is_forget, value=torch.tensor(2.0))
    found = collection.compute()
    assert (found["m4"].item(), found["loss"].item()) == (measure(batches), 2.0)


def test_processes_are_joined(batches):
    """As torchmetrics joins them: each process gives its rows, which are concatenated."""
    from ruler.hooks.torchmetrics import PercentileRank

    other = PercentileRank()
    other.update(*batches[1])
    theirs = iter([torch.cat(other.forget), torch.cat(other.retain)])
    metric = PercentileRank(
        dist_sync_fn=lambda mine, group=None: [mine, next(theirs)], distributed_available_fn=lambda: True
    )
    metric.update(*batches[0])
    assert metric.compute().item() == measure(batches[:2])
    assert len(torch.cat(metric.retain)) < 80  # its own again after the synchronisation


def test_half_precision_is_widened(metric, batches):
    rows, is_forget = batches[0]
    metric.update(rows.bfloat16(), is_forget)
    assert metric.compute().item() == measure([(rows.bfloat16().float(), is_forget)])


def test_other_shapes_are_refused(metric):
    with pytest.raises(InputError, match=r"embeddings must be \(n, p\) and is_forget \(n,\); got \(2, 3, 4\)"):
        metric.update(torch.zeros(2, 3, 4), torch.ones(2))
