"""32 threads with one requests session and its pool of 32 connections: every text is submitted, and asked for until it is
counted. Prints one line; the exit code is 1 when an answer is not what it should be.

Usage: pool.py URL TASKS [CA_FILE]
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import requests
from requests.adapters import HTTPAdapter

CONNECTIONS = 32
PATIENCE = 60


def one(session, url, number):
    text = f"number {number} of many"
    answer = session.post(f"{url}/tasks", json={"text": text}, timeout=PATIENCE)
    while answer.status_code == 503 and answer.json()["outcome"] == "none":
        time.sleep(float(answer.headers["Retry-After"]))
        answer = session.post(f"{url}/tasks", json={"text": text}, timeout=PATIENCE)
    assert answer.status_code == 202, (answer.status_code, answer.text)
    location, end = answer.headers["Location"], time.monotonic() + PATIENCE
    while True:
        answer = session.get(url + location, timeout=PATIENCE)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        task = answer.json()
        if task["status"] == "SUCCEEDED":
            break
        assert task["status"] in ("QUEUED", "RUNNING") and time.monotonic() < end, task
    assert (task["words"], task["bytes"], task["runes"]) == (4, len(text), len(text)), task
    return task["id"]


def main():
    url, tasks = sys.argv[1], int(sys.argv[2])
    with requests.Session() as session:
        session.trust_env = False
        session.verify = sys.argv[3] if len(sys.argv) > 3 else True
        # No retries of its own: a lost connection must show.
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=CONNECTIONS, pool_block=True, max_retries=0)
        session.mount(url, adapter)
        began = time.monotonic()
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            ids = set(threads.map(lambda number: one(session, url, number), range(tasks)))
        took = time.monotonic() - began
        pools = adapter.poolmanager.pools
        (pool,) = (pools[key] for key in pools.keys())
        assert len(ids) == tasks, (len(ids), tasks)
        assert pool.num_connections <= CONNECTIONS, f"{pool.num_connections} connections were opened"
        print(
            f"{tasks} tasks, {pool.num_requests} requests on {pool.num_connections} connections,"
            f" {pool.num_requests / took:.0f} requests/s"
        )


main()
