# dags/nightly.py
import datetime, subprocess
from airflow.decorators import dag, task
from airflow.exceptions import AirflowException, AirflowFailException

@dag(schedule="30 1 * * *", start_date=datetime.datetime(2026, 1, 1), catchup=False)
def nightly():
    @task(retries=5, retry_delay=datetime.timedelta(minutes=10))
    def train(ds=None):
        code = subprocess.call(["gpurun", "--run-id", ds, "--deadline", "6h", "--junit", "junit.xml", "train.toml"], cwd="/srv/gpt")
        if code:
            raise (AirflowException if code == 75 else AirflowFailException)(f"gpurun ended with {code}")

    train()

nightly()
