import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.audits import AuditTiming, Case
from benchmarks.cuda import CudaTiming
from benchmarks.document import write_document
from benchmarks.pipelines import PipelineTiming
from benchmarks.protocol import ProtocolTiming
from benchmarks.search import KindTiming, Timing
from benchmarks.shards import ShardsTiming
from benchmarks.studies import StudyTiming


def test_the_page_holds_every_measured_number(tmp_path):
    cpu = Timing("diffuse", 20_000, 128, "ruler", 0.25, 1.0, 73.0, 2.04)
    gpu = CudaTiming("diffuse, CUDA", 1_000_000, 128, "ruler", 0.36, 1.0, 3062.0, 0.92, 361.0, 0.46, 1.12)
    first = CudaTiming("diffuse, CUDA", 1_000_000, 128, "ruler, first pass", 0.32, 0.89, 800.0, 1.04, 402.0, 0.52)
    stages = {"read": 0.1, "search": 2.0, "statistics": 4.0, "save": 0.4}
    benches = [
        {
            "machine": {"processor": "abacus", "cores": 2},
            "search": [asdict(cpu)],
            "protocol": [asdict(ProtocolTiming("phoneme", "ensemble", 30.0, 10.0, 3.0, 2.8, 3.1, 300.0, 400.0))],
            "pipelines": [
                asdict(PipelineTiming("magic", "ensemble", 2, 90.0, 30.0, 3.0, 2.5, 3.5, 120.0, 50.0, 2.4, 700, 650))
            ],
        },
        {"machine": {"processor": "loom"}, "search": [asdict(gpu), asdict(first)], "notes": ["Woven once."]},
        {
            "machine": {"processor": "mill"},
            "shards": [asdict(ShardsTiming(3_000_000, 128, 10_000, None, 660.0, 2048.0))],
            "studies": [
                asdict(StudyTiming("primary", "cuda", 1800, 39.5)),
                asdict(StudyTiming("oracle-null", "cuda", 450, 8.0)),
            ],
            "kinds": [asdict(KindTiming("collapsed", 20_000, 128, 0.8, 1.7, 1.4, 0.4, 60.0, True))],
            "cuda_kinds": [
                {"kind": "tight classes", "n_rows": 200_000, "width": 768}
                | {"elapsed_s": 0.2, "over_rectified": 2.5, "extra_mb": 900.0, "is_exact": True}
            ],
            "audits": [
                asdict(AuditTiming(Case(10_000, 128, 1000), stages, 6.4, 512.0, "erased")),
                asdict(AuditTiming(Case(10_000, 64, 1000), stages, 7.4, 512.0, "erased", "cuda")),
            ],
            "embedding": [
                {"work": "some texts", "rival": "loop", "rival_s": 9.0, "ruler_s": 4.0}
                | {"rival_mb": 30.0, "ruler_mb": 40.0, "apart": 2e-6}
            ],
        },
        {"before": {"kinds 20000": "0.77x", "audits on cuda 10000 64": "32 s"}},
    ]
    write_document(benches, tmp_path)
    page = (tmp_path / "performance.md").read_text()
    assert "| diffuse | 20,000 | 128 | ruler | 0.25 | 1.00x | 73 | 2.04 |" in page
    assert "| 1,000,000 | 128 | ruler | 0.36 | 361 | 0.46 | 1.12x | 1.00x | 3062 |" in page
    assert "| 1,000,000 | 128 | ruler, first pass | 0.32 | 402 | 0.52 |  | 0.89x | 800 |" in page
    assert "| phoneme | ensemble | 30.0 | 10.0 | 3.00x (2.80 to 3.10) | 300 | 400 |" in page
    assert "| magic | ensemble | 2 | 120.0 | 50.0 | 2.40x | 90 | 30 | 3.00x (2.50 to 3.50) | 700 | 650 |" in page
    assert "| 3,000,000 | 128 | 10,000 | all | 11.0 min | 2.00 |" in page
    assert "| primary | cuda | 1,800 | 40 |" in page
    assert "| collapsed | 20,000 | 0.80 | 1.70 | 1.40 | 0.40 | 1.75x | 60 | yes |" in page
    assert "| tight classes | 200,000 | 768 | 0.200 | 2.5x | 900 | yes |" in page
    assert "| 10,000 | 128 | 1,000 | all | 0.1 | 2.0 | 4.0 | 0.4 | 6.5 | 6.4 | 0.50 |" in page
    assert page.index("on a GPU\n\nAs above") < page.index("| 10,000 | 64 | 1,000 | all |")
    assert "| some texts | loop | 9.00 | 4.00 | 2.25x | 30 | 40 | 2e-06 |" in page
    assert (
        "one thread | 0.77x | 0.80 to 0.80 s | faiss, not exact | 1.75 to 1.75x | 0.40 to 0.40 s | at most 60 MB |"
        in page
    )
    assert "| 32 s | 7 s |" in page
    assert "| together |  | 2,250 | 48 |" in page
    for words in ("processor abacus, cores 2", "processor loom", "Woven once.", "## On a GPU"):
        assert words in page


def test_the_page_in_the_docs_is_that_of_the_recorded_numbers(tmp_path):
    docs = Path(__file__).parents[2] / "docs"
    benches = [json.loads(path.read_text()) for path in sorted((docs / "bench").glob("*.json"))]
    write_document(benches, tmp_path)
    for page in ("performance.md", "precision.md"):
        assert (docs / page).read_text() == (tmp_path / page).read_text()
