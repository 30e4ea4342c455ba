"""Every subject there is, built in one place: no name from outside becomes a wildcard or a separator."""

from dataclasses import dataclass

from exo.domain.ids import ApiId, InstanceId, NodeId, RunnerId, TaskId, is_token
from exo.errors import Rejected


def token(text: str) -> str:
    """`text`, if it may stand as one token of a subject. Raises Rejected otherwise."""
    if not is_token(text):
        raise Rejected(f"'{text}' may not stand in a subject: only letters, digits, '-' and '_'", code="invalid_id")
    return text


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of one cluster."""

    cluster: str

    @property
    def root(self) -> str:
        """What all of them begin with."""
        return f"exo.{token(self.cluster)}"

    def command(self, command_type: str) -> str:
        """Where commands of a type go."""
        return f"{self.root}.cmd.{token(command_type)}"

    def report(self, report_type: str) -> str:
        """Where reports of a type go."""
        return f"{self.root}.report.{token(report_type)}"

    def event(self, event_type: str) -> str:
        """Where the leading master records events of a type."""
        return f"{self.root}.event.{token(event_type)}"

    def task(self, instance_id: InstanceId) -> str:
        """Where an instance's runners find their tasks."""
        return f"{self.root}.task.{token(instance_id)}"

    def request(self, task_id: TaskId) -> str:
        """Where the payload of a generation lies."""
        return f"{self.root}.request.{token(task_id)}"

    def record(self, task_id: TaskId) -> str:
        """Where lies beside the payload what its API keeps for later."""
        return f"{self.request(task_id)}.record"

    def chunk(self, api_id: ApiId, task_id: TaskId) -> str:
        """Where the output of a generation goes."""
        return f"{self.root}.chunk.{token(api_id)}.{token(task_id)}"

    def chunks_for(self, api_id: ApiId) -> str:
        """All output for one API process."""
        return f"{self.root}.chunk.{token(api_id)}.*"

    def chunks_of(self, task_id: TaskId) -> str:
        """The output of a generation, whichever API process asked for it."""
        return f"{self.root}.chunk.*.{token(task_id)}"

    def beat(self, node_id: NodeId, runner_id: RunnerId) -> str:
        """Where a runner shows its worker that it lives."""
        return f"{self.root}.beat.{token(node_id)}.{token(runner_id)}"

    def beats_on(self, node_id: NodeId) -> str:
        """All beats for one worker."""
        return f"{self.root}.beat.{token(node_id)}.*"

    def api_beat(self, api_id: ApiId) -> str:
        """Where an API process shows that it lives."""
        return f"{self.root}.api_beat.{token(api_id)}"

    def count(self, instance_id: InstanceId) -> str:
        """Where an instance's runner says how many tokens a prompt has."""
        return f"{self.root}.count.{token(instance_id)}"

    def prefill(self, instance_id: InstanceId) -> str:
        """Where an instance's runner is asked to compute a prompt for another instance."""
        return f"{self.root}.prefill.{token(instance_id)}"

    def query(self, name: str) -> str:
        """Where a master answers questions of a kind."""
        return f"{self.root}.query.{token(name)}"

    def all_of(self, kind: str) -> str:
        """Every subject of a kind: cmd, report, event, task, request, chunk, beat or api_beat."""
        return f"{self.root}.{token(kind)}.>"
