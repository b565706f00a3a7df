"""Write the script with which a shell completes verbs, options and the names of sessions."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import groups_of, paths_of, time_left
from intercom.cli.render import Output
from intercom.errors import IntercomError, UsageError
from intercom.limits import COMPLETION_MS

USAGE = "bash | zsh | fish"
DESCRIPTION = """Print a script that completes verbs, options, and the names of the sessions that can be reached now.

    bash: put `eval "$(intercom completion bash)"` into ~/.bashrc
    zsh:  put `eval "$(intercom completion zsh)"` into ~/.zshrc, after compinit
    fish: put `intercom completion fish | source` into ~/.config/fish/config.fish

`intercom completion words` prints what may stand as a target, one word a line; the scripts call it. It starts no broker
and gives up soon. A name that a shell might take for more than a word is given as the id of its session.
"""
PASSED_ON = ("--as", "--group", "--home")
"""Options given on the line that decide which sessions are in reach."""
TARGETED = ("send", "ask")
"""Verbs whose first word is a session."""
QUOTE = "'\\''"
"""A single quote within a text in single quotes: end it, add one, begin again."""
FISH_WORDS = """\
function __intercom_words
    set -l given
    set -l tokens (commandline -opc)
    set -l place 2
    while test $place -le (count $tokens)
        set -l next (math $place + 1)
        switch $tokens[$place]
            case --as --group --home
                if test $next -le (count $tokens)
                    set -a given $tokens[$place] (string unescape -- $tokens[$next] | string replace -r '^~/' "$HOME/")
                end
                set place $next
            case '--as=*' '--group=*' '--home=*'
                set -a given $tokens[$place]
        end
        set place (math $place + 1)
    end
    command intercom completion words $given 2>/dev/null
end"""
"""What fish calls for the names of sessions: it hands on those of ``PASSED_ON`` that the line has."""
_PLAIN = frozenset("-_.@+:")


def configure(parser: Parser) -> None:
    """Add the options of ``completion``."""
    parser.add_argument("words", nargs="*", metavar="SHELL", help="bash, zsh or fish")
    add_common(parser, timeout="longest wait for the names of sessions")


def run(arguments: Namespace, output: Output) -> int:
    """Print the script, or the words, and return 0."""
    if arguments.words == ["words"]:
        found = _targets(arguments)
        output.document({"ok": True, "words": found})
        for word in found:
            output.line(word)
        return 0
    if len(arguments.words) != 1 or arguments.words[0] not in SCRIPTS:
        raise UsageError("name a shell: bash, zsh or fish", hint="`intercom completion --help` tells where it goes.")
    shell = arguments.words[0]
    script = SCRIPTS[shell]()
    output.document({"ok": True, "shell": shell, "script": script})
    output.line(script.rstrip("\n"))
    return 0


def _targets(arguments: Namespace) -> list[str]:
    """Return a word for each session in reach; none when there is no broker that answers at once."""
    from intercom.client import blocking

    try:
        with blocking.connect(
            groups=groups_of(arguments, paths_of(arguments)),
            home=arguments.home,
            purpose="control",
            model="intercom completion",
            start=False,
            timeout=time_left(arguments, COMPLETION_MS),
        ) as session:
            views = session.list(timeout=time_left(arguments, COMPLETION_MS))
    except IntercomError:
        return []
    return sorted({view.name if view.name is not None and is_plain(view.name) else view.id for view in views})


def is_plain(name: str) -> bool:
    """Tell whether every shell takes a name for one word and nothing else: names are written by peers."""
    return not name.startswith("-") and all(character.isalnum() or character in _PLAIN for character in name)


def _verbs() -> dict[str, str]:
    from intercom.cli.main import VERBS

    return VERBS


def _options(verb: str) -> list[tuple[str, str, bool]]:
    """Return every long option of a verb with its meaning, and whether it takes a value."""
    from intercom.cli.reference import options_of, parser_of

    return [(option.option_strings[-1], str(option.help), option.nargs != 0) for option in options_of(parser_of(verb))]


def _valued() -> str:
    """Return all options that take a value, as a pattern of ``case``."""
    return "|".join(sorted({option for verb in _verbs() for option, _, valued in _options(verb) if valued}))


def _choices() -> dict[str, list[str]]:
    """Return the words that an option takes, for each option that takes nothing else."""
    from intercom.config import settings_table

    found = {}
    for name, setting in settings_table().items():
        words = ["true", "false"] if isinstance(setting.default, bool) else list(setting.about.choices)
        if words:
            found["--" + name.replace("_", "-")] = words
    return found


def _passed_on() -> tuple[str, str]:
    """Return patterns of ``case`` for the options that are passed on, with the value as the next word and in one."""
    return "|".join(PASSED_ON), "|".join(f"{option}=*" for option in PASSED_ON)


def _chosen() -> str:
    """Return one line of a ``case`` for each option of which the values are known."""
    return "\n".join(f'        {option}) fixed="{" ".join(words)}" ;;' for option, words in _choices().items())


def _words(verb: str) -> list[str]:
    """Return the fixed words a verb takes."""
    from intercom.cli.docs import pages
    from intercom.cli.install import ALL
    from intercom.hosts.facts import HOOKED

    known = {
        "completion": ["bash", "zsh", "fish"],
        "inbox": ["list", "show", "dispatch", "claim", "wait", "settle"],
        "assignment": ["list", "show", "report", "reply"],
        "invocation": ["list", "show", "watch", "cancel"],
        "flow": [
            "create",
            "start",
            "list",
            "status",
            "append",
            "pause",
            "resume",
            "retry",
            "cancel",
            "report",
            "watch",
            "gc",
        ],
        "link": ["list", "show", "events", "repin"],
        "command": ["send", "list", "show"],
        "store": ["check", "rebuild", "move-aside"],
        "schema": [*_verbs(), "wire"],
        "docs": list(pages()),
        "install": list(ALL),
        "uninstall": list(ALL),
        "hook": list(HOOKED),
    }
    return known.get(verb, [])


def _cases() -> str:
    """Return one line of a ``case`` for each verb: its options, and its fixed words."""
    lines = []
    for verb in _verbs():
        options = " ".join(option for option, _, _ in _options(verb))
        lines.append(f'        {verb}) options="{options} --help"; fixed="{" ".join(_words(verb))}" ;;')
    return "\n".join(lines)


def bash() -> str:
    """Return the script for bash; nothing a peer wrote is ever expanded by the shell."""
    apart, joined = _passed_on()
    return f"""\
_intercom() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local verb="" options="" fixed="" word value place=1 targets=0
    local -a given=()
    COMPREPLY=()
    while [ "$place" -lt "$COMP_CWORD" ]; do
        word="${{COMP_WORDS[place]}}"
        case "$word" in
            {_valued()})
                place=$((place + 1))
                [ "${{COMP_WORDS[place]}}" = "=" ] && place=$((place + 1))
                if [ "$place" -lt "$COMP_CWORD" ]; then
                    value=${{COMP_WORDS[place]/#\\~\\//$HOME/}}
                    value=${{value//[\\"\\'\\\\]/}}
                    case "$word" in
                        {apart}) given+=("$word" "$value") ;;
                    esac
                fi ;;
            {joined}) given+=("$word") ;;
            -*) ;;
            *) if [ -z "$verb" ]; then verb="${{COMP_WORDS[place]}}"; else targets=$((targets + 1)); fi ;;
        esac
        place=$((place + 1))
    done
    case "$previous" in
        --home) compopt -o dirnames 2>/dev/null; return ;;
        --attach) compopt -o default 2>/dev/null; return ;;
{_chosen()}
        {_valued()}) return ;;
    esac
    if [ -n "$fixed" ]; then
        for word in $fixed; do
            case "$word" in "$current"*) COMPREPLY+=("$word") ;; esac
        done
        return
    fi
    case "$verb" in
        "") options="--version --help"; fixed="{" ".join(_verbs())}" ;;
{_cases()}
    esac
    case "$current" in
        -*) fixed="$options" ;;
    esac
    for word in $fixed; do
        case "$word" in "$current"*) COMPREPLY+=("$word") ;; esac
    done
    case "$verb" in
        {"|".join(TARGETED)})
            if [ "$targets" -eq 0 ]; then
                while IFS= read -r word; do
                    case "$word" in "$current"*) COMPREPLY+=("$word") ;; esac
                done < <(command intercom completion words ${{given[@]+"${{given[@]}}"}} 2>/dev/null)
            fi ;;
    esac
}}
complete -F _intercom intercom
"""


def zsh() -> str:
    """Return the script for zsh."""
    apart, joined = _passed_on()
    verbs = "\n".join(f"            {_quoted(f'{verb}:{summary}')}" for verb, summary in _verbs().items())
    return f"""\
_intercom() {{
    local current="${{words[CURRENT]}}" previous="${{words[CURRENT-1]}}"
    local verb="" options="" fixed="" place targets=0
    local -a verbs found given
    for ((place = 2; place < CURRENT; place++)); do
        case "${{words[place]}}" in
            {apart})
                ((place + 1 < CURRENT)) && given+=("${{words[place]}}" "${{(Q)words[place+1]/#\\~\\//$HOME/}}")
                ((place++)) ;;
            {_valued()}) ((place++)) ;;
            {joined}) given+=("${{(Q)words[place]}}") ;;
            -*) ;;
            *) if [[ -z $verb ]]; then verb="${{words[place]}}"; else ((targets += 1)); fi ;;
        esac
    done
    case "$previous" in
        --home) _files -/; return ;;
        --attach) _files; return ;;
{_chosen()}
        {_valued()}) return ;;
    esac
    if [[ -n $fixed ]]; then
        compadd -- ${{=fixed}}
        return
    fi
    if [[ -z $verb && $current != -* ]]; then
        verbs=(
{verbs}
        )
        _describe verb verbs
        return
    fi
    case "$verb" in
        "") options="--version --help" ;;
{_cases()}
    esac
    if [[ $current == -* ]]; then
        compadd -- ${{=options}}
        return
    fi
    [[ -n $fixed ]] && compadd -- ${{=fixed}}
    case "$verb" in
        {"|".join(TARGETED)})
            if ((targets == 0)); then
                found=("${{(@f)$(command intercom completion words "${{given[@]}}" 2>/dev/null)}}")
                compadd -- ${{found}}
            fi ;;
    esac
    return 0
}}
compdef _intercom intercom
"""


def fish() -> str:
    """Return the script for fish."""
    lines = [FISH_WORDS, "complete -c intercom -f"]
    choices = _choices()
    unused = f"not __fish_seen_subcommand_from {' '.join(_verbs())}"
    for verb, summary in _verbs().items():
        lines.append(f"complete -c intercom -n {_quoted(unused)} -a {verb} -d {_quoted(summary)}")
    for verb in _verbs():
        used = _quoted(f"__fish_seen_subcommand_from {verb}")
        for option, meaning, valued in _options(verb):
            takes = _takes(option, choices.get(option, [])) if valued else ""
            lines.append(f"complete -c intercom -n {used} -l {option[2:]}{takes} -d {_quoted(meaning)}")
        if words := _words(verb):
            lines.append(f"complete -c intercom -n {used} -a {_quoted(' '.join(words))}")
    for verb in TARGETED:
        used = _quoted(f"__fish_seen_subcommand_from {verb}")
        lines.append(f"complete -c intercom -n {used} -a '(__intercom_words)'")
    return "\n".join(lines) + "\n"


def _takes(option: str, words: list[str]) -> str:
    """Return how fish is told what follows an option, of which all values may be known."""
    if words:
        return f" -x -a {_quoted(' '.join(words))}"
    return " -r -F" if option in ("--home", "--attach", "--context") else " -x"


def _quoted(text: str) -> str:
    """Return a text of ours in single quotes, for zsh and fish."""
    return "'" + text.replace("'", QUOTE) + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
