"""`odar pull`: weights of local models, ahead of time."""

from __future__ import annotations

import json

import click

from odar.cli.local import fetch_model, local_models
from odar.config import PROFILES, load_settings
from odar.errors import UnknownName
from odar.providers.weights import catalogue


@click.command("pull")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--force", is_flag=True, help="Download again even if the files are there and intact.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with name, path and size of each.")
def command(names: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Download the weights of local models into the cache, verify them, and repair damaged ones.

    NAME is a model that `odar models --local` lists, or a profile for all of its models; the default is local.
    Interrupt it whenever you like: the same command resumes the download. `odar ask` downloads what a question
    needs by itself. ODAR_CACHE_DIR sets the cache folder; ODAR_OFFLINE=1 forbids downloads.

    \b
    odar pull                        # the default pair, 1.6 GB
    odar pull qwen2.5-coder-0.5b
    odar pull tiny                   # 98 MB, for tests
    """
    fetched = []
    for model in dict.fromkeys(model for name in names or ("local",) for model in _models(name)):
        path = fetch_model(model, quiet=as_json, force=force)
        fetched.append({"name": model, "path": str(path), "bytes": path.stat().st_size})
        if not as_json:
            click.echo(str(path))
    if as_json:
        click.echo(json.dumps(fetched))


def _models(name: str) -> list[str]:
    """The models that a name of a model or a profile stands for."""
    if name in catalogue():
        return [name]
    profiles = [profile for profile in PROFILES if profile != "custom"]
    if name in profiles and (models := local_models(load_settings(name, config="/dev/null", environ={}))):
        return models
    raise UnknownName("local model", name, [*catalogue(), "local", "tiny"])
