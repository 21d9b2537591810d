"""Options of a cluster are taken with it, and refused without it."""

import pytest

from ruler.cli.options import choose_cluster
from ruler.core.errors import InputError, UnknownNameError


def test_options_that_were_given_reach_the_cluster():
    cluster = choose_cluster("ray", job_cpus=2, job_gpus=0.5)
    assert cluster is not None
    assert (cluster.job_cpus, cluster.job_gpus) == (2, 0.5)
    assert choose_cluster("ray", job_cpus=None, job_gpus=None) == choose_cluster("ray")


def test_without_a_cluster_its_options_are_refused():
    assert choose_cluster("local", job_cpus=None) is None
    with pytest.raises(InputError, match="--job-cpus must be used with --executor ray; got --executor local"):
        choose_cluster("local", job_cpus=2)


def test_an_unknown_executor_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="ray"):
        choose_cluster("rai")
