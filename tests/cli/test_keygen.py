"""`ruler keygen` writes a pair of keys once, and says which is which."""

import re
import stat

import pytest
from typer.testing import CliRunner

from ruler.auditing.seal.signature import load_private_key, load_public_key, name_key
from ruler.cli.app import make_app
from ruler.core.errors import RulerError


def keygen(folder):
    return CliRunner().invoke(make_app(), ["keygen", "--out", str(folder)], catch_exceptions=False)


def test_the_pair_belongs_together_and_the_private_key_is_ones_own(tmp_path):
    said = keygen(tmp_path / "keys")
    assert said.exit_code == 0
    private, public = tmp_path / "keys" / "ruler-key.pem", tmp_path / "keys" / "ruler-key.pub.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert load_private_key(private).public_key() == load_public_key(public)
    assert said.output.splitlines() == [
        f"private key: {private} (keep it to yourself)",
        f"public key: {public} (hand it on)",
        f"key id: {name_key(load_public_key(public))}",
    ]


def test_each_pair_is_another(tmp_path):
    first, second = (re.search("key id: (.*)", keygen(tmp_path / name).output)[1] for name in ("one", "two"))
    assert first != second


@pytest.mark.parametrize("name", ["ruler-key.pem", "ruler-key.pub.pem"])
def test_no_key_is_ever_overwritten(tmp_path, name):
    (tmp_path / name).write_text("somebody's key")
    with pytest.raises(RulerError, match=name.replace(".", r"\.")):
        keygen(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["somebody's key"]
