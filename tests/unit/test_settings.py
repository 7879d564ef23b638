"""Settings: what a file may contain, and the messages for everything else."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from kernelcoreset import Gaussian, Linear, SettingError, UserKernel
from kernelcoreset.jobs.settings.settings import SECTIONS, Settings

CONF = Path(__file__).parents[2] / "conf"
LEAST = {"input": {"demo_rows": 100}, "kernel": {"name": "Linear"}, "coreset": {"k": 3}}


def settings_with(**sections):
    """The least settings with more keys in some sections; a key that is None is taken out."""
    tables = {name: dict(table) for name, table in LEAST.items()}
    for name, table in sections.items():
        tables[name] = {key: value for key, value in {**tables.get(name, {}), **table}.items() if value is not None}
    return Settings.from_dict(tables)


def overlap(x, y):
    return min(x[0], y[0])


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "twitter", "update", "stream", "reference"])
def test_a_shipped_file_loads_and_survives_json(name):
    settings = Settings.load(CONF / f"{name}.toml")
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_the_reference_mentions_every_field_and_no_other():
    text = (CONF / "reference.toml").read_text()
    sections = dict(re.findall(r"^\[(\w+)\](.*?)(?=^\[|\Z)", text, flags=re.M | re.S))
    settings = Settings.load(CONF / "reference.toml")
    assert list(sections) == list(SECTIONS)
    for name, body in sections.items():
        if name != "kernel":
            mentioned = re.findall(r"^(?:# )?(\w+) = ", body, flags=re.M)
            assert mentioned == [part.name for part in fields(getattr(settings, name))]


def test_the_reference_states_the_true_defaults():
    """A key with a default that is not commented out must be that default, or be in the list of examples."""
    examples = {"input.path", "input.features", "coreset.k", "cluster.k", "output.path"}
    tables = tomllib.loads((CONF / "reference.toml").read_text())
    least = settings_with(input={"demo_rows": None, "path": "x", "features": ["a"]}, features={}).to_dict()
    for section in set(tables) - {"kernel"}:
        for key, value in tables[section].items():
            if f"{section}.{key}" not in examples:
                assert value == least[section][key], f"{section}.{key}"


def lines_without_reason(text, *, is_toml):
    """The settings that have no comment: on their own line in TOML, above their paragraph in a .conf file."""
    found, reason_above = [], False
    for line in text.splitlines():
        if not line or line.startswith(("#", "[")):
            reason_above = line.startswith("#")
        elif not (re.search(r"\S +# \S", line) if is_toml else reason_above):
            found.append(line)
    return found


@pytest.mark.parametrize("file", sorted(CONF.iterdir()), ids=lambda file: file.name)
def test_every_line_of_conf_has_its_reason(file):
    text, is_toml = file.read_text(), file.suffix == ".toml"
    assert lines_without_reason(text, is_toml=is_toml) == []
    # This test can fail: without the comments no setting has a reason.
    settings = [line for line in text.splitlines() if line and not line.startswith(("#", "["))]
    bare = re.sub(r"(^| +)# .*", "", text, flags=re.M)
    assert len(lines_without_reason(bare, is_toml=is_toml)) == len(settings) > 0


def test_defaults_that_depend_on_other_keys():
    settings = settings_with(coreset={"seed": 7})
    assert (settings.cluster.k, settings.certificate.seed) == (3, 7)
    assert settings.input.features == ("longitude", "latitude")


def test_a_file_that_is_missing_broken_or_not_text(tmp_path):
    with pytest.raises(SettingError, match=r"settings file .*absent\.toml does not exist"):
        Settings.load(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[input]\npath = points\n")
    with pytest.raises(SettingError, match=r"broken\.toml is not valid TOML: .*line 2"):
        Settings.load(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match=r"broken\.toml cannot be read"):
        Settings.load(broken)
    with pytest.raises(SettingError, match="cannot be read"):
        Settings.load(tmp_path)


def test_a_message_names_the_file_and_the_key(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('[input]\ndemo_rows = 9\n[kernel]\nname = "Linear"\n[coreset]\nk = 0\n')
    with pytest.raises(SettingError, match=r"my\.toml: `coreset.k` must be at least 1; got 0"):
        Settings.load(file)
    with pytest.raises(SettingError, match=r"my\.toml with --set: `coreset.k` must be a whole number; got 'x'"):
        Settings.load(file, ["coreset.k=x"])


def test_a_byte_order_mark_is_skipped(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text(CONF.joinpath("demo.toml").read_text(), encoding="utf-8-sig")
    assert Settings.load(file) == Settings.load(CONF / "demo.toml")


# --- overrides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("coreset.k=8", "coreset.k", 8),
        ("coreset.z = 1.5", "coreset.z", 1.5),
        ("output.path=some/where", "output.path", "some/where"),
        ('output.path="a = b"', "output.path", "a = b"),
        ("input.where=a = 'b'", "input.where", "a = 'b'"),
        ('input.features=["a", "b"]', "input.features", ("a", "b")),
        ("input.features=embedding", "input.features", "embedding"),
        ("spark.conf.spark.sql.ansi.enabled=false", "spark.conf", {"spark.sql.ansi.enabled": "false"}),
        ('input.options={header = true, sep = ";"}', "input.options", {"header": "true", "sep": ";"}),
    ],
)
def test_an_override_is_toml_or_else_text(override, key, value):
    assert Settings.load(CONF / "demo.toml", [override]).get(key) == value


def test_the_last_override_wins():
    assert Settings.load(CONF / "demo.toml", ["coreset.k=8", "coreset.k=9"]).coreset.k == 9


@pytest.mark.parametrize("override", ["coreset.k", "k=8", ".k=8", "coreset.=8", "=8", ""])
def test_an_override_without_section_or_value_is_refused(override):
    with pytest.raises(SettingError, match=r"--set takes section\.key=value"):
        Settings.load(CONF / "demo.toml", [override])


def test_an_override_below_a_value_is_refused():
    with pytest.raises(SettingError, match="`k` is a value, not a section"):
        Settings.load(CONF / "demo.toml", ["coreset.k.more=8"])


# --- unknown names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"corset": {}}, r"Unknown section `corset`. Did you mean `coreset`\?"),
        ({"xyz": {}}, "Unknown section `xyz`. Known: input, features, kernel"),
        ({"input": {"feature": ["a"]}}, r"Unknown key `input.feature`. Did you mean `input.features`\?"),
        ({"coreset": {"size": 9}}, r"Unknown key `coreset.size`. Did you mean `coreset.coreset_size`\?"),
        ({"output": {"qqqq": 9}}, "Unknown key `output.qqqq`. Known: path, table"),
        ({"kernel": {"name": "Gausian"}}, r"`kernel.name` must be .* got 'Gausian'. Did you mean 'Gaussian'\?"),
        ({"kernel": {"name": "gaussian"}}, "`kernel.sigma` is required by Gaussian"),
        ({"kernel": {"name": ["Gaussian"]}}, r"got \['Gaussian'\]. Known: "),
        ({"kernel": {"name": "_Pair"}}, "`kernel.name` must be the name of a kernel"),
        (
            {"kernel": {"name": "Normalized", "inner": {"name": "Linear"}}},
            "`kernel.name` must not be 'Normalized'.*run the job `spectral`",
        ),
        ({"kernel": {"name": "Linear", "sigma": 1.0}}, r"Unknown key `kernel.sigma`. Known: none\."),
        ({"kernel": {"name": None}}, "got None. Known: Cosine"),
        (
            {"kernel": {"name": "Gaussian", "sigmma": 1.0}},
            r"Unknown key `kernel.sigmma`. Did you mean `kernel.sigma`\?",
        ),
        ({"kernel": {"name": "Linear", "sigma": 1.0}}, "Unknown key `kernel.sigma`"),
        ({"kernel": {"name": "Gaussian"}}, "`kernel.sigma` is required by Gaussian"),
        ({"coreset": {"k": None}}, "`coreset.k` is required"),
    ],
)
def test_unknown_and_missing_names(sections, message):
    with pytest.raises(SettingError, match=message):
        settings_with(**sections)


def test_a_section_must_be_one():
    with pytest.raises(SettingError, match=r"`coreset` must be a section, written \[coreset\]; got 5"):
        Settings.from_dict({**LEAST, "coreset": 5})
    with pytest.raises(SettingError, match=r"section \[kernel\] is required"):
        Settings.from_dict({name: table for name, table in LEAST.items() if name != "kernel"})


# --- kernels ---------------------------------------------------------------------------------------------------------


def test_kernels_of_kernels_in_either_spelling():
    kernel = Gaussian(sigma=2.0) + 0.5 * Linear()
    own_words = {
        "name": "Sum",
        "left": {"name": "Gaussian", "sigma": 2.0},
        "right": {"name": "Scaled", "factor": 0.5, "inner": {"name": "Linear"}},
    }
    assert settings_with(kernel=own_words).kernel.build() == kernel
    assert settings_with(kernel={"name": None, **kernel.to_dict()}).kernel.build() == kernel


@pytest.mark.parametrize("name", ["rbf", "RBF", "gaussian", "Gaussian"])
def test_kernels_have_the_names_of_the_python_api_too(name):
    assert settings_with(kernel={"name": name, "sigma": 2.0}).kernel.build() == Gaussian(sigma=2.0)
    with pytest.raises(SettingError, match=r'`kernel\.sigma` must be a number above 0, or "median" or "auto"; got'):
        settings_with(kernel={"name": name, "sigma": "atuo"})


def test_a_user_kernel_comes_by_its_import_path():
    own = {"name": "UserKernel", "function": f"{__name__}:overlap"}
    found = settings_with(kernel=own, run={"trusted_modules": [__name__]})
    assert found.kernel.build() == UserKernel(overlap)
    assert found.run.trusted_modules == (__name__,)
    with pytest.raises(SettingError, match="`kernel`: The user kernel 'nowhere:f' cannot be imported"):
        settings_with(kernel={"name": "UserKernel", "function": "nowhere:f"}, run={"trusted_modules": ["nowhere"]})
    with pytest.raises(SettingError, match=r"`kernel`: The user kernel .* not trusted .* run.trusted_modules in the"):
        settings_with(kernel=own)


def test_a_width_left_to_the_data_is_filled_in_later():
    wide = {"name": "Gaussian", "sigma": "median"}
    kernel = settings_with(kernel={"name": "Sum", "left": wide, "right": {"name": "Linear"}}).kernel
    assert kernel.sigma_rule == "median"
    assert kernel.build(sigma=4.0) == Gaussian(sigma=4.0) + Linear()
    with pytest.raises(SettingError, match=r"`kernel.sigma` = 'median' is chosen from the data"):
        kernel.build()
    assert settings_with(kernel={"name": "Gaussian", "sigma": 3.0}).kernel.sigma_rule is None


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"name": "Gaussian", "sigma": 0.0}, "`kernel.sigma` must be a finite number above 0; got 0.0"),
        ({"name": "Gaussian", "sigma": "mean"}, "`kernel.sigma` must be a number above 0, or .* got 'mean'"),
        ({"name": "Polynomial", "degree": 0}, "`kernel.degree` must be at least 1"),
        ({"name": "Scaled", "factor": 2.0, "inner": {"name": "Gaussian", "sigma": -1}}, "`kernel.inner.sigma` must be"),
        ({"name": "Scaled", "factor": 2.0, "inner": 5}, "`kernel.inner` must be a table"),
    ],
)
def test_a_kernel_is_built_at_once(kernel, message):
    with pytest.raises(SettingError, match=message):
        settings_with(kernel=kernel)


# --- values ----------------------------------------------------------------------------------------------------------

FROM_PATH = {"demo_rows": None, "path": "points", "features": ["a", "b"]}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"input": {"path": "x"}}, "Give exactly one of `input.path`, .* got path and demo_rows"),
        ({"input": {"demo_rows": None}}, "Give exactly one of .* got none"),
        ({"input": {"demo_rows": 0}}, "`input.demo_rows` must be at least 1"),
        ({"input": {**FROM_PATH, "path": " "}}, "`input.path` must be a text that is not empty, in quotes; got ' '"),
        ({"input": {**FROM_PATH, "where": 5}}, "`input.where` must be a text"),
        ({"input": {**FROM_PATH, "features": ["a", "a"]}}, "`input.features` must be a list of different column names"),
        ({"input": {**FROM_PATH, "features": 3}}, "`input.features` must be a list of different column names"),
        ({"input": {**FROM_PATH, "options": 3}}, "`input.options` must be a table"),
        ({"input": {**FROM_PATH, "options": {"x": [1]}}}, "`input.options.x` must be a text, a number or true/false"),
        ({"input": {"bad_rows": "ignore"}}, "`input.bad_rows` must be one of 'fail', 'drop', 'quarantine'"),
        ({"input": {"bad_rows": "quarantine"}}, "`input.quarantine_path` goes with .* give both or neither"),
        ({"input": {"quarantine_path": "x"}}, "`input.quarantine_path` goes with .* give both or neither"),
        ({"input": {"scan": "fast"}}, "`input.scan` must be one of"),
        ({"input": {"scan": "direct"}}, '`input.scan` = "direct" reads whole Parquet files'),
        ({"input": {**FROM_PATH, "scan": "direct", "where": "a > 0"}}, "no `input.where`"),
        ({"input": {**FROM_PATH, "weight_col": "a"}}, "`input.weight_col` must not be one of the features"),
        ({"coreset": {"k": True}}, "`coreset.k` must be a whole number"),
        ({"coreset": {"coreset_size": 2}}, r"`coreset.coreset_size` must be at least 3; got 2. Ask for more coreset"),
        ({"coreset": {"leaf_size": 999}}, "`coreset.leaf_size` must be at least 1000"),
        ({"coreset": {"z": 0.5}}, "`coreset.z` must be a finite number of at least 1"),
        ({"coreset": {"seed": -1}}, "`coreset.seed` must be at least 0"),
        ({"cluster": {"k": 4}}, r"`cluster.k` must be at most `coreset.k` \(3\); got 4"),
        ({"cluster": {"n_init": 0}}, "`cluster.n_init` must be at least 1"),
        ({"output": {"path": "x", "table": "y"}}, "Give one of `output.path` and `output.table`; got both"),
        ({"output": {"mode": "replace"}}, "`output.mode` must be one of 'error', 'overwrite'"),
        ({"output": {"path": "x", "mode": "overwrite-partitions"}}, "needs `output.partition_by`"),
        ({"output": {"columns": ["a"], "partition_by": ["b"]}}, r"must hold the columns .* missing: \['b'\]"),
        ({"output": {"prediction_col": "distance"}}, "new columns of `output` must have different names"),
        ({"output": {"distance_col": "latitude"}}, r"must not be named like the features .* got \['latitude'\]"),
        ({"certificate": {"fraction": 1.5}}, "`certificate.fraction` must be at most 1"),
        ({"certificate": {"fraction": 0}}, "`certificate.fraction` must be a finite number above 0"),
        ({"certificate": {"center_sets": -1}}, "`certificate.center_sets` must be at least 0"),
        ({"spark": {"conf": {"shuffle": 1}}}, "which start with 'spark.'; got 'shuffle'"),
        (
            {"spark": {"conf": {"spark": {"master": "yarn"}}}},
            "cannot set spark.master: Spark reads it before this file",
        ),
        ({"spark": {"conf": {"spark.driver.memory": "9g"}}}, "cannot set spark.driver.memory"),
        (
            {"graph": {"source_col": "a", "target_col": "a"}},
            "`graph.source_col` must not be `graph.target_col`",
        ),
        ({"graph": {"most_edges": 0}}, "`graph.most_edges` must be at least 1"),
        ({"store": {"path": ""}}, "`store.path` must be a text that is not empty"),
        ({"store": {"paht": "x"}}, "Unknown key `store.paht`. Did you mean `store.path`"),
        ({"update": {"lable": "all"}}, "Unknown key `update.lable`. Did you mean `update.label`"),
        ({"update": {"label": "some"}}, "`update.label` must be one of 'new', 'all', 'none'; got 'some'"),
        ({"update": {"vanished": "drop"}}, "`update.vanished` must be one of 'expire', 'keep'"),
        ({"update": {"window": 0}}, "`update.window` must be at least 1"),
        ({"update": {"half_life": -1}}, "`update.half_life` must be a finite number above 0"),
        ({"update": {"version_col": "v"}}, "`update.version_col` needs `update.key_col`"),
        ({"update": {"version_col": "v", "key_col": "v"}}, "`update.version_col` must not be `update.key_col`"),
        ({"stream": {"trigger": "now"}}, '`stream.trigger` must be "available-now" or a time such as "10 seconds"'),
        ({"stream": {"refit_batches": 0}}, "`stream.refit_batches` must be at least 1"),
        ({"stream": {"refit_minutes": 0}}, "`stream.refit_minutes` must be a finite number above 0"),
        ({"stream": {"fan_in": 1}}, "`stream.fan_in` must be at least 2; got 1. At least two keys are merged into one"),
        ({"input": {**FROM_PATH, "schema": 5}}, "`input.schema` must be a text"),
        ({"input": {**FROM_PATH, "select": "x"}}, "`input.select` must be a list"),
        ({"input": {**FROM_PATH, "scan": "direct", "select": ["a"]}}, "no `input.where` or `input.select`"),
        ({"run": {"record": "dbfs:/x.json"}}, "`run.record` must be a local path or start with one of file, s3"),
        ({"mlflow": {"experiment": ""}}, "`mlflow.experiment` must be a text that is not empty"),
        ({"mlflow": {"tracking_uri": "http://h"}}, "`mlflow.tracking_uri` needs `mlflow.experiment`: without it"),
        ({"mlflow": {"registered_model": "m"}}, "`mlflow.registered_model` needs `mlflow.experiment`: without it"),
    ],
)
def test_a_bad_value_is_refused_with_its_full_key(sections, message):
    with pytest.raises(SettingError, match=message):
        settings_with(**sections)


def test_partitions_by_the_prediction_need_no_input_column():
    output = settings_with(output={"path": "x", "columns": ["a"], "partition_by": ["prediction"]}).output
    assert output.partition_by == ("prediction",)


def test_a_source_without_files_needs_no_place():
    found = settings_with(
        input={"demo_rows": None, "format": "kafka", "features": ["x"], "options": {"subscribe": "t"}}
    )
    assert found.input.has_no_place


def test_a_table_knows_its_own_partitions():
    assert settings_with(output={"table": "t", "mode": "overwrite-partitions"}).output.partition_by == ()
