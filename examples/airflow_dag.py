"""An Airflow DAG that runs the job `update` every night, and fills in days by `airflow backfill create`.

Copy it into the folder of DAGs and set three variables of Airflow (or environment variables `AIRFLOW_VAR_...`):

kernelcoreset_command
    How a job is started, such as `/opt/kernelcoreset/spark-submit.sh /opt/kernelcoreset/jobs/update.py`, or
    `kernelcoreset-update` if the package is installed where the tasks run.
kernelcoreset_config
    The settings file.
kernelcoreset_options
    Optional: more options of the job, such as `--set input.path=/data/events`.

Every run is "as of" its day: it takes the keys up to `{{ ds }}` and leaves later ones alone, so that runs may come in
any order and be repeated. Exit codes become what Airflow does next:

====  ====================================================  =========================================
0     done                                                  success
2, 3  bad settings, bad data: another try cannot succeed    failed at once
1     an error that nobody has foreseen                     failed at once
else  4: environment (disk, network, memory), 5: another    failed, and tried again after `retry_delay`
      job was faster, 137: killed. The next try needs no
      help
====  ====================================================  =========================================
"""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import Any

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

NOT_WORTH_ANOTHER_TRY = {1, 2, 3}


class JobOperator(BaseOperator):
    """Runs a job of kernelcoreset as a process; its log lines become those of the task.

    Parameters
    ----------
    command : str
        The command line, with templates.
    """

    template_fields = ("command",)

    def __init__(self, *, command: str, **options: Any) -> None:
        super().__init__(**options)
        self.command = command
        self._process = SubprocessHook()

    def execute(self, context: Any) -> None:
        """Run the job, and say by the exception whether another try makes sense."""
        result = self._process.run_command(shlex.split(self.command), cwd="/")
        if result.exit_code == 0:
            return
        error = AirflowFailException if result.exit_code in NOT_WORTH_ANOTHER_TRY else AirflowException
        raise error(f"The job ended with exit code {result.exit_code}: {result.output}")

    def on_kill(self) -> None:
        """Pass on a stop from the user interface: the job ends with a record, and nothing is lost."""
        self._process.send_sigterm()


with DAG(
    dag_id="kernelcoreset_update",
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # two runs on one store would only wait for each other
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5), "retry_exponential_backoff": True},
):
    JobOperator(
        task_id="update",
        command=(
            "{{ var.value.kernelcoreset_command }} --config {{ var.value.kernelcoreset_config }} "
            "--set update.until={{ ds }} {{ var.value.get('kernelcoreset_options', '') }}"
        ),
    )
