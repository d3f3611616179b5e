"""How a policy's outputs become indices in C: by argmax, several of them, or by their signs."""

from quarl_bench.backends.template import fill_part
from quarl_bench.policies.head import ActionHead, HeadKind

MASK = "const unsigned char *mask"


def is_plain(head: ActionHead) -> bool:
    """Whether its action is one index of any output, which a function returns."""
    return head.single and not head.masked


def list_arguments(head: ActionHead) -> tuple[str, ...]:
    """What the caller passes beside an observation or outputs: the mask, where actions have one, and the place."""
    if not head.discrete:
        return ("float *action",)
    if is_plain(head):
        return ()
    return (MASK, "int *action") if head.masked else ("int *action",)


def count_actions(head: ActionHead, outputs: int) -> int:
    """How many numbers an action is, of a net of `outputs` without its state."""
    return len(head.list_choices(outputs)) if head.discrete else outputs


def declare_head(head: ActionHead) -> str:
    """The function from outputs to an action."""
    if is_plain(head):
        return "int policy_argmax(const policy_output_t *output)"
    name = "choose" if head.discrete else "action"
    return f"void policy_{name}({', '.join(('const policy_output_t *output', *list_arguments(head)))})"


def call_head(head: ActionHead) -> str:
    """An expression of what `policy_act` returns."""
    if is_plain(head):
        return "policy_argmax(output)"
    name, mask = "choose" if head.discrete else "action", "mask, " * head.masked
    return f"(policy_{name}(output, {mask}action), 0)"


def describe_action(head: ActionHead, tabled: bool) -> str:
    """What the header says of an action."""
    if not head.discrete:
        return f"POLICY_ACTIONS numbers, {'by table, ' * tabled}one for each output (head: {head.kind})"
    if is_plain(head):
        return "index of the largest output; the lowest index wins ties"
    if head.kind is HeadKind.BITS:
        what = "POLICY_ACTIONS bits, 1 where an output stands for a number above 0"
    else:
        what = "POLICY_ACTIONS indices from 0, each of the largest of its outputs; the lowest index wins ties"
    allowed = (
        ".\n * `mask` has 1 for what is allowed and 0 for what is not, in the outputs' order, for a bit its 0 and its 1"
    )
    return what + f"{allowed};\n * NULL allows everything" * head.masked


def write_choice(head: ActionHead, outputs: int) -> str:
    """The function from outputs to indices."""
    if is_plain(head):
        return fill_part("argmax.c")
    parameters = ", ".join(("const policy_output_t *output", *list_arguments(head)))
    if head.kind is HeadKind.BITS:
        value = "output[i] > POLICY_OUTPUT_ZERO_POINT"
        if head.masked:
            value = f"mask && !mask[2 * i + 1] ? 0 : mask && !mask[2 * i] ? 1 : {value}"
        return fill_part("bits.c", parameters=parameters, value=value)
    return fill_part(
        "choose.c",
        sizes=", ".join(map(str, head.list_choices(outputs))),
        parameters=parameters,
        allowed="(!mask || mask[i]) && " * head.masked,
        next="\n        mask = mask ? mask + choices[part] : mask;" * head.masked,
    )
