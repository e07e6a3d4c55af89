"""Which code belongs to a job."""

from pathlib import Path

from flows.code_digest import modules_of


def test_a_job_is_its_module_and_what_it_imports_but_not_its_neighbours() -> None:
    modules = modules_of("intake")
    assert {"jobs.intake", "jobs.contract", "draftmill.intake.model_folder", "draftmill.outcome"} <= modules.keys()
    assert not any(name.startswith(("draftmill.store", "draftmill.cli", "jobs.quantize")) for name in modules)


def test_imports_inside_functions_count_too() -> None:
    source = Path(modules_of("convert")["jobs.convert"]).read_text()
    assert "import" in source
    assert "draftmill.gguf.convert_native" in modules_of("convert")


def test_a_package_stands_for_its_init() -> None:
    assert modules_of("quantize")["draftmill"].name == "__init__.py"
