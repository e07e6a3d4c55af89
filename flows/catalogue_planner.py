"""What a catalogue run would do, and why: the hub's list held against what the last runs left. No side effects.

What did not change costs no request of its own: the list or the row names the commit, and the recipe follows from it.
Only a branch or tag of a row is asked for, and a target that was out of reach. What will run is looked at (its files,
config.json, where needed the headers), several at a time.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property

from draftmill.ahead import Ahead
from draftmill.catalogue.catalogue import Catalogue
from draftmill.catalogue.classify import classify
from draftmill.catalogue.evidence import look, selection_for
from draftmill.catalogue.standing import Standing, Standings, differences, read_standings
from draftmill.digest import sha256_json
from draftmill.hub.authors import Listed, list_author
from draftmill.hub.listing import Listing, Selection
from draftmill.hub.ref import DEFAULT_REVISION, Ref, parse_ref
from draftmill.hub.resolve import resolve
from draftmill.hub.source import Source
from draftmill.outcome import BadConfiguration, MillError, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.store.interface import Store
from flows.catalogue_order import CatalogueOrder
from flows.catalogue_plan import GONE, Item, Plan, Skip, Work
from flows.code_digest import code_digest
from flows.display import DISPLAY, progress_of
from flows.order import Order
from flows.recipe import SHORT, Recipe
from flows.routes.route import Route, Setting, Subject, find_route, routes, unpinned_donor
from flows.secrets import secret_files
from flows.sources import source_of

LOOKS = 8
LISTS = 4
PAGES = 2000
"""Repositories, of each of so many lists at once, that are held before they are looked through."""
FINAL = ("pass", "refused")
"""Verdicts that hold while nothing changes."""
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A revision that always means the same."""


def check_routes(catalogue: Catalogue) -> None:
    """Raises BadConfiguration for a family whose route is no module here."""
    known = routes()
    wrong = [
        (("families", name, "route"), f"there is no route {family.route}; they are {', '.join(known)}")
        for name, family in catalogue.families.items()
        if family.route not in known
    ]
    if wrong:
        raise catalogue.wrong(wrong)


def make_plan(order: CatalogueOrder, catalogue: Catalogue, store: Store) -> Plan:
    """Reads the store and the hub. Raises what those raise and what `Planner.plan` does."""
    setting = Setting(order.hub, order.store, order.work, order.runner, catalogue.licences)
    with secret_files() as files:
        source = source_of(order.hub, files)
        planner = Planner(catalogue, read_standings(store), source, setting, only=order.only, again=order.again)
        return planner.plan(progress_of(DISPLAY.get(), "plan"))


class Planner:
    """source: where the drafters are listed. only: a pattern of owner/repo."""

    def __init__(
        self,
        catalogue: Catalogue,
        standings: Standings,
        source: Source,
        setting: Setting,
        *,
        only: str | None = None,
        again: bool = False,
    ) -> None:
        check_routes(catalogue)
        self.catalogue = catalogue
        self._standings = standings
        self._source = source
        self._setting = setting
        self._only = "*" if only is None else only
        self._again = again
        self._donors: dict[str, str] = {}
        self._readable: dict[str, bool] = {}
        self._speed: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def plan(self, progress: Progress = silent) -> Plan:
        """Raises what listing an author raises, and BadConfiguration where `only` fits nothing: it is mistyped, and a
        schedule with it would do nothing for ever. What is wrong with one drafter is an item with a problem."""
        plan = Plan()
        waiting: list[tuple[Listed, str]] = []
        for listed in self._listed(plan, progress):
            if listed.repo not in self.catalogue.drafters:
                plan.unlisted.append(listed.repo)
            standing = self._standings.get(listed.repo)
            reason = self._reason(listed, standing)
            if reason:
                waiting.append((listed, reason))
            elif standing:
                plan.skips.append(_skip(listed.repo, standing))
        if self._only != "*" and not (waiting or plan.items or plan.skips):
            raise BadConfiguration(
                f"No drafter fits {self._only!r}: neither a row of {self.catalogue.path}, nor a repository of "
                "its authors that has a family's name. Write owner/repo, where * stands for any text; case counts.",
                code="catalogue.only",
                where=self._only,
            )
        with ThreadPoolExecutor(LOOKS) as pool:
            for done, item in enumerate(pool.map(lambda each: self._look(*each), waiting), 1):
                plan.items.append(item)
                progress("drafters looked at", done, len(waiting))
        plan.items = [replace(item, seconds=self._seconds(item)) for item in plan.items]
        plan.items.sort(key=lambda item: item.repo)
        return plan

    def _listed(self, plan: Plan, progress: Progress) -> Iterator[Listed]:
        """Every repository of interest; at the end rows that no list had."""
        authors = [name for name in self.catalogue.authors if _may_have(name, self._only)]
        missing = {repo for repo in self.catalogue.drafters if fnmatchcase(repo, self._only)}
        # The hub works on its next page while this one is looked through, and on the next authors.
        lists = deque(Ahead(list_author(author, self._source), PAGES) for author in authors[:LISTS])
        for number in range(len(authors)):
            progress("authors listed", number, len(authors))
            if number + LISTS < len(authors):
                lists.append(Ahead(list_author(authors[number + LISTS], self._source), PAGES))
            for listed in lists.popleft():
                wanted = listed.repo in missing or self.catalogue.family_by_name(listed.repo)
                missing.discard(listed.repo)
                if wanted and fnmatchcase(listed.repo, self._only):
                    yield listed
        for repo in sorted(missing):
            sentence = (
                "It is in the catalogue, and the hub does not list it. `draftmill catalogue discover` says whether it "
                "was renamed; remove the row if it is gone."
            )
            problem = Refused(Refusal(GONE, repo, "not listed", "a repository", sentence))
            plan.items.append(Item(repo, "not on the hub any more", "", {}, problem=problem))

    def _reason(self, listed: Listed, standing: Standing | None) -> str:
        """Why it has to run, "" when it has not."""
        if standing is None:
            return "no run before"
        if standing.verdict == "pass" and standing.size:
            speed = self._speed[standing.route]
            speed[0] += standing.seconds
            speed[1] += standing.size
        if self._again:
            return "asked for again"
        try:
            commit = self._commit(listed)
        except MillError as error:
            return f"cannot be told from the last run: {error.code}"
        if standing.seen != commit:
            return f"commit {standing.seen[:SHORT]} -> {commit[:SHORT]}"
        if standing.rules != self.catalogue.rules_digest:
            return "the catalogue's rules changed"
        if standing.verdict not in FINAL:
            return f"{standing.verdict} the last time: {standing.code or standing.sentence}"
        if back := [name for name in standing.unreached if self._answers(name)]:
            return f"not judged against {', '.join(back)} the last time"
        try:
            now = self._made_of_before(listed, standing)
        except MillError as error:
            return f"cannot be told from the last run: {error.code}"
        return ", ".join(f"{name} changed" for name in differences(standing.made_of, now))

    def _commit(self, listed: Listed) -> str:
        """What the row's revision means now. Raises what `resolve` raises."""
        revision = self.catalogue.drafter(listed.repo).revision
        if revision == DEFAULT_REVISION:
            return listed.commit
        if COMMIT.fullmatch(revision):
            return revision
        return resolve(Ref(listed.repo, revision), self._source, selection_for(listed.files)).commit

    def _made_of_before(self, listed: Listed, standing: Standing) -> Mapping[str, str]:
        """What a run would rest on now, if the family is still what it was at this commit."""
        family = self.catalogue.families.get(standing.family)
        if family is None:
            return {"commit": standing.commit[:SHORT]}
        drafter = self.catalogue.drafter(listed.repo)
        files = standing.files or listed.files
        subject = Subject(listed.repo, standing.commit, files, standing.family, family, drafter)
        route = find_route(family.route)
        order = route.order(subject, self._setting)
        return self._made_of(route, subject, route.recipe(subject, order, self._donor(order)))

    def _look(self, listed: Listed, reason: str) -> Item:
        drafter = self.catalogue.drafter(listed.repo)
        pinned = listed.commit if drafter.revision == DEFAULT_REVISION else drafter.revision
        commit = pinned if COMMIT.fullmatch(pinned) else listed.commit
        try:
            looked, evidence = look(Ref(listed.repo, pinned), self._source, listed.files)
            commit = looked.commit
            shown = classify(evidence, self.catalogue.families, drafter.family)
            family = self.catalogue.families[shown.family]
            route = find_route(family.route)
            listing = self._taken(listed.repo, looked, selection_for(evidence.files), route.selection)
            subject = Subject(listed.repo, listing.commit, evidence.files, shown.family, family, drafter)
            order = route.order(subject, self._setting)
            donor = self._donor(order)
            recipe = route.recipe(subject, order, donor)
        except MillError as error:
            return Item(listed.repo, reason, commit, {"commit": commit[:SHORT]}, problem=error)
        remarks = (*shown.remarks, *unpinned_donor(order, donor))
        work = Work(subject, order, recipe, route.needs(listing, order), listing, evidence, remarks)
        made_of = self._made_of(route, subject, recipe)
        listed_as = "" if commit == listing.commit else commit
        return Item(listed.repo, reason, listing.commit, made_of, work, listed=listed_as)

    def _taken(self, repo: str, looked: Listing, selection: Selection, wanted: Selection) -> Listing:
        """What a run will take. Raises what `resolve` raises."""
        if selection == wanted:
            return looked
        # The commit of a mirror without pins is that of what is taken, and a mirror has no other revision.
        revision = looked.commit if looked.source == "hub" else DEFAULT_REVISION
        return resolve(Ref(repo, revision), self._source, wanted)

    def _made_of(self, route: Route, subject: Subject, recipe: Recipe) -> dict[str, str]:
        made_of = recipe.parts()
        if route.pairs:
            made_of["targets"] = self._targets
            made_of["trained for"] = sha256_json(list(subject.drafter.trained_for))[:SHORT]
        return made_of

    @cached_property
    def _targets(self) -> str:
        targets = {name: target.revision for name, target in self.catalogue.targets.items()}
        return sha256_json({"targets": targets, "code": code_digest("pair")})[:SHORT]

    def _donor(self, order: Order) -> str | None:
        """The donor's commit now. Raises what `resolve` raises."""
        name = order.tokenizer_from
        if name is None:
            return None
        if name not in self._donors:
            self._donors[name] = resolve(parse_ref(name), self._source, "tokenizer").commit
        return self._donors[name]

    def _answers(self, name: str) -> bool:
        """Whether a target can be read now: one that stays gated would have every drafter run at every plan. What is
        no target here only a run can tell."""
        target = self.catalogue.targets.get(name)
        if target is None:
            return True
        if name not in self._readable:
            try:
                look(Ref(name, target.revision), self._source)
                self._readable[name] = True
            except MillError as error:
                self._readable[name] = isinstance(error, Refused)
        return self._readable[name]

    def _seconds(self, item: Item) -> float | None:
        """Its own last time, else what its route took for each byte, scaled to its size."""
        if item.work is None or not item.work.needs.download:
            return 0.0
        standing = self._standings.get(item.repo)
        seconds, size = self._speed.get(item.route, (0.0, 0.0))
        if standing and standing.verdict == "pass" and standing.size:
            seconds, size = standing.seconds, standing.size
        return seconds * item.work.listing.size / size if size else None


def _skip(repo: str, standing: Standing) -> Skip:
    recipe = f"recipe {standing.recipe[:8]}, " if standing.recipe else ""
    missing = f", out of reach: {', '.join(standing.unreached)}" if standing.unreached else ""
    return Skip(repo, standing.family, standing.verdict, f"nothing changed: {recipe}{standing.at}{missing}")


def _may_have(author: str, pattern: str) -> bool:
    """Whether a repository of this author may fit; looked at for the part before the slash alone."""
    head, slash, _ = pattern.partition("/")
    return fnmatchcase(author, head) if slash else True
