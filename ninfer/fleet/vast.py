"""Machines rented from Vast.ai, by the vendor's HTTP API."""

from typing import Any, Final

from ninfer.errors import OfferGoneError, OutcomeUnknownError, ProviderError, RefusedError
from ninfer.fleet.clock import Clock
from ninfer.fleet.provider import Need, Offer, Snapshot, Spec, StrayRentError
from ninfer.fleet.vast_http import Answer, VastHttp
from ninfer.fleet.vast_shapes import number, read_offer, read_snapshot

_PAGE: Final = 25
_MOST_PAGES: Final = 40
_LOG_TRIES: Final = 5


class Vast:
    """Provider of rented machines. A call that bills is sent once, the others may be repeated."""

    name = "vast"
    bills = True

    def __init__(self, http: VastHttp, clock: Clock) -> None:
        self._http = http
        self._clock = clock

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def offers(self, need: Need) -> list[Offer]:
        """Offers of one such card, by what the vendor can filter; cheapest first."""
        query = {
            "gpu_name": {"in": list(need.gpu_names)},
            "num_gpus": {"eq": 1},
            "rentable": {"eq": True},
            "verified": {"eq": True},
            "disk_space": {"gte": need.free_disk},
            "gpu_ram": {"gte": need.gpu_ram},
            "cuda_max_good": {"gte": need.cuda},
            "direct_port_count": {"gte": 1},
            "reliability": {"gte": need.reliability},
            "inet_down": {"gte": need.inet_down},
            "allocated_storage": need.disk,
            "type": "on-demand",
            "order": [["dph_total", "asc"]],
            "limit": 500,
        }
        answer = self._http.ask("search", "POST", "/api/v0/bundles/", json=query)
        rows = (answer.body or {}).get("offers")
        if answer.status != 200 or not isinstance(rows, list):
            raise self._http.unintelligible("search", answer)
        now = self._clock.now()
        read = [read_offer(row, need.disk, now) for row in rows if isinstance(row, dict)]
        return [offer for offer in read if offer is not None]

    def balance(self) -> float | None:
        """Dollars of credit; None if the vendor's answer does not say."""
        answer = self._http.ask("account", "GET", "/api/v0/users/current/")
        if answer.status != 200 or answer.body is None:
            raise self._http.unintelligible("account", answer)
        credit = number(answer.body.get("credit"))
        return number(answer.body.get("balance")) if credit is None else credit

    def rent(self, offer: Offer, spec: Spec) -> str:
        """Rent; see Provider.rent."""
        body = {
            "client_id": "me",
            "image": spec.image,
            "disk": spec.disk,
            "label": spec.label,
            "runtype": "ssh_direc ssh_proxy",
            "onstart": spec.start,
            "env": {f"-p {port}:{port}": "1" for port in spec.ports},
            "target_state": "running",
            "cancel_unavail": True,
        }
        path = f"/api/v0/asks/{offer.id}/"
        answer = self._http.once("rent", "PUT", path, json=body)
        made = (answer.body or {}).get("new_contract")
        reason = f"rent of offer {offer.id}: {answer.status} {self._http.clean(answer.reason)}"
        if isinstance(made, int) and not isinstance(made, bool) and made > 0:
            if answer.status == 200 and (answer.body or {}).get("success") is True:
                return str(made)
            raise StrayRentError(reason, machine_id=str(made))
        raise _no_contract(answer, reason)

    def get(self, machine_id: str) -> Snapshot | None:
        """One machine; None only for the vendor's own words that it is gone."""
        path = f"/api/v0/instances/{machine_id}/"
        answer = self._http.ask("show", "GET", path, params={"owner": "me"})
        if answer.is_gone:
            return None
        body = answer.body or {}
        if answer.status == 200 and "instances" in body and body["instances"] is None:
            return None
        snapshot = read_snapshot(body.get("instances"))
        if answer.status != 200 or snapshot is None or snapshot.id != machine_id:
            raise self._http.unintelligible(f"machine {machine_id}", answer)
        return snapshot

    def machines(self) -> list[Snapshot]:
        """All machines of the account, page by page; nothing is filtered by the vendor."""
        found: list[Snapshot] = []
        token: str | None = None
        for _ in range(_MOST_PAGES):
            params = {"limit": str(_PAGE), **({"after_token": token} if token else {})}
            answer = self._http.ask("list", "GET", "/api/v1/instances/", params=params)
            body = answer.body or {}
            rows, following = body.get("instances"), body.get("next_token")
            whole = isinstance(rows, list) and (following is None or isinstance(following, str))
            if answer.status != 200 or body.get("success") is not True or not whole:
                raise self._http.unintelligible("list of machines", answer)
            for row in rows or ():
                snapshot = read_snapshot(row)
                if snapshot is None:
                    raise self._http.unintelligible("list of machines", answer)
                found.append(snapshot)
            token = following
            if not token:
                return self._counted(found, body, answer)
        raise ProviderError(f"list of machines: no end after {_MOST_PAGES} pages")

    def _counted(
        self, found: list[Snapshot], body: dict[str, Any], answer: Answer
    ) -> list[Snapshot]:
        """The list, unless the vendor counts more machines than it listed."""
        total = number(body.get("total_instances"))
        if total is None or total > len({snapshot.id for snapshot in found}):
            raise self._http.unintelligible("list of machines", answer)
        return found

    def start(self, machine_id: str) -> None:
        """Ask for it to run."""
        self._change(machine_id, "running")

    def stop(self, machine_id: str) -> None:
        """Ask for it to stop."""
        self._change(machine_id, "stopped")

    def _change(self, machine_id: str, state: str) -> None:
        path = f"/api/v0/instances/{machine_id}/"
        answer = self._http.ask("change", "PUT", path, json={"state": state})
        self._done(f"machine {machine_id} to {state}", answer)

    def _done(self, what: str, answer: Answer) -> None:
        """Raises RefusedError with the vendor's words, ProviderError for an unknown shape."""
        if answer.status == 200 and (answer.body or {}).get("success") is True:
            return
        if answer.body is not None and (answer.code or answer.body.get("success") is False):
            raise RefusedError(f"{what}: {answer.status} {self._http.clean(answer.reason)}")
        raise self._http.unintelligible(what, answer)

    def destroy(self, machine_id: str) -> None:
        """Ask for its end. Whether it is gone is for `get` and `machines` to say."""
        path = f"/api/v0/instances/{machine_id}/"
        answer = self._http.ask("destroy", "DELETE", path, json={})
        if not answer.is_gone:
            self._done(f"end of machine {machine_id}", answer)

    def admit_key(self, machine_id: str, public_key: str) -> None:
        """Give the machine a public key; one that it has already is fine."""
        path = f"/api/v0/instances/{machine_id}/ssh/"
        answer = self._http.ask("change", "POST", path, json={"ssh_key": public_key})
        if "already" not in answer.reason:
            self._done(f"ssh key of machine {machine_id}", answer)

    def log(self, machine_id: str, lines: int) -> str:
        """The end of the container's output, which the vendor puts behind an address."""
        path = f"/api/v0/instances/request_logs/{machine_id}/"
        answer = self._http.ask("log", "PUT", path, json={"tail": str(lines)})
        url = (answer.body or {}).get("result_url")
        if answer.status != 200 or not isinstance(url, str):
            raise self._http.unintelligible(f"log of machine {machine_id}", answer)
        for _ in range(_LOG_TRIES):
            text = self._http.fetch(url)
            if text is not None:
                return text
            self._clock.sleep(2.0)
        return ""


def _no_contract(answer: Answer, reason: str) -> Exception:
    """What an answer to a rent call without a contract means; in doubt, that nobody knows."""
    if answer.status == 429:
        return ProviderError(f"{reason}; turned away for calling too often")
    spoken = answer.body is not None and bool(answer.code or answer.body.get("success") is False)
    if not spoken or not 400 <= answer.status < 500:
        return OutcomeUnknownError(reason)
    if answer.is_bad_key:
        return RefusedError(f"{reason}; the vendor refused VAST_API_KEY")
    if answer.status in (404, 410) or answer.code == "no_such_ask":
        return OfferGoneError(reason)
    return RefusedError(reason)
