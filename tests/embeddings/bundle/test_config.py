"""The TOML file of an audit: what is wrong with it is told in a line that says what to write instead."""

import pytest

from ruler.auditing.settings import AuditSettings
from ruler.core.errors import FileFormatError, InputError
from ruler.embeddings.bundle.config import read_config


def write_toml(folder, text):
    path = folder / "audit.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("[embeddings", "must be TOML"),
        ("[embedings]", "got 'embedings'. Did you mean 'embeddings'?"),
        ("[embeddings]\nunlerned = 'a'", "Did you mean 'unlearned'?"),
        ("[embeddings]\noracle_held_out = 'a'", 'Write oracle = "DIR", a folder that holds held_out.*'),
        ("[models]\nunlearned = 'a'\n[data]\ntest = 'a'", "got 'data.test'. Write held_out"),
        ("[embeddings]\nunlearned='a'\n[settings]\nlimt = 0.1", "got 'settings.limt'. Did you mean 'limit'?"),
        ("[embeddings]\nunlearned='a'\n[settings]\nxyz = 0.1", "Known are alpha, limit"),
        ("[embeddings]\nunlearned='a'\n[settings]\nlimit = 'wide'", "settings.limit: Input should be a valid number"),
        ("[embeddings]\nunlearned='a'\n[settings]\nlimit = 1.7", "limit must be under 1"),
        ("[embeddings]\nunlearned='a'\n[settings]\nmargin = 0.1", "got 'settings.margin'. Write limit, the most that"),
        ("[embeddings]\nunlearned='a'\n[settings]\nmargin_chosen_by = 'me'", "Write limit_chosen_by."),
        ("[embeddings]\nunlearned='a'\n[settings]\nshare_limit = 0.5", "got 'settings.share_limit'. Write limit, the"),
        ("[embeddings]\nunlearned = 3", "embeddings.unlearned: Input should be a valid string"),
        ("[embeddings]", "embeddings.unlearned: Field required"),
        ("groups = 'a.csv'", "must have either [embeddings] or [models] with [data]; got neither"),
        ("[embeddings]\nunlearned='a'\n[models]\nfactory='a:b'\nunlearned='c'", "got both"),
        ("[models]\nfactory = 'a:b'", "models.unlearned: Field required"),
        ("[models]\nfactory = 'a:b'\nunlearned = 'c.pt'", "must have [data] with [models]"),
        (
            "[models]\nfactory='a:b'\nunlearned='c.pt'\n[data]\nforget='f.npy'",
            "either factory, or the files forget and retain",
        ),
        (
            "[models]\nfactory='a:b'\nunlearned='c.pt'\n[data]\nfactory='a:b'\nheld_out='f.npy'",
            "either factory, or the files",
        ),
    ],
)
def test_a_bad_toml_is_refused(tmp_path, text, phrase):
    with pytest.raises(InputError) as caught:
        read_config(write_toml(tmp_path, text), AuditSettings)
    assert phrase in str(caught.value)


def test_the_toml_must_be_a_small_text_file(tmp_path):
    with pytest.raises(FileFormatError, match="must be a TOML file; got nothing there"):
        read_config(tmp_path / "none.toml", AuditSettings)
    with pytest.raises(FileFormatError, match="must be a TOML file; got a folder"):
        read_config(tmp_path, AuditSettings)
    path = tmp_path / "audit.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileFormatError, match="must be TOML in UTF-8"):
        read_config(path, AuditSettings)
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(FileFormatError, match="must have at most 262,144 bytes"):
        read_config(path, AuditSettings)


def test_settings_are_the_audits_own(tmp_path):
    text = "[embeddings]\nunlearned='a'\n[settings]\nlimit = 0.05\nalign = 'never'\nscope = 'outputs'"
    config, settings = read_config(write_toml(tmp_path, text), AuditSettings)
    assert config.embeddings.unlearned == "a"
    assert settings == AuditSettings(limit=0.05, align="never", scope="outputs")
    text = "[embeddings]\nunlearned='a'"
    assert read_config(write_toml(tmp_path, text), AuditSettings)[1] == AuditSettings()
