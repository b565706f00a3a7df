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
TARGETED = ("send", "ask")
"""Verbs whose first word is a session."""
QUOTE = "'\\''"
"""A single quote within a text in single quotes: end it, add one, begin again."""
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


def _words(verb: str) -> list[str]:
    """Return the fixed words a verb takes."""
    from intercom.cli.docs import pages
    from intercom.cli.foreign import HOSTS

    known = {
        "completion": ["bash", "zsh", "fish"],
        "store": ["check", "move-aside"],
        "schema": [*_verbs(), "wire"],
        "docs": list(pages()),
        "install": sorted(HOSTS),
        "uninstall": sorted(HOSTS),
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
    return f"""\
_intercom() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local verb="" options="" fixed="" word place=1 targets=0
    COMPREPLY=()
    while [ "$place" -lt "$COMP_CWORD" ]; do
        case "${{COMP_WORDS[place]}}" in
            {_valued()}) place=$((place + 1)) ;;
            -*) ;;
            *) if [ -z "$verb" ]; then verb="${{COMP_WORDS[place]}}"; else targets=$((targets + 1)); fi ;;
        esac
        place=$((place + 1))
    done
    case "$previous" in
        --home) compopt -o dirnames 2>/dev/null; return ;;
        --attach) compopt -o default 2>/dev/null; return ;;
        {_valued()}) return ;;
    esac
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
                done < <(command intercom completion words 2>/dev/null)
            fi ;;
    esac
}}
complete -F _intercom intercom
"""


def zsh() -> str:
    """Return the script for zsh."""
    verbs = "\n".join(f"            {_quoted(f'{verb}:{summary}')}" for verb, summary in _verbs().items())
    return f"""\
_intercom() {{
    local current="${{words[CURRENT]}}" previous="${{words[CURRENT-1]}}"
    local verb="" options="" fixed="" place targets=0
    local -a verbs found
    for ((place = 2; place < CURRENT; place++)); do
        case "${{words[place]}}" in
            {_valued()}) ((place++)) ;;
            -*) ;;
            *) if [[ -z $verb ]]; then verb="${{words[place]}}"; else ((targets += 1)); fi ;;
        esac
    done
    case "$previous" in
        --home) _files -/; return ;;
        --attach) _files; return ;;
        {_valued()}) return ;;
    esac
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
                found=("${{(@f)$(command intercom completion words 2>/dev/null)}}")
                compadd -- ${{found}}
            fi ;;
    esac
    return 0
}}
compdef _intercom intercom
"""


def fish() -> str:
    """Return the script for fish."""
    lines = ["complete -c intercom -f"]
    unused = f"not __fish_seen_subcommand_from {' '.join(_verbs())}"
    for verb, summary in _verbs().items():
        lines.append(f"complete -c intercom -n {_quoted(unused)} -a {verb} -d {_quoted(summary)}")
    for verb in _verbs():
        used = _quoted(f"__fish_seen_subcommand_from {verb}")
        for option, meaning, valued in _options(verb):
            takes = "" if not valued else " -r -F" if option in ("--home", "--attach") else " -x"
            lines.append(f"complete -c intercom -n {used} -l {option[2:]}{takes} -d {_quoted(meaning)}")
        if words := _words(verb):
            lines.append(f"complete -c intercom -n {used} -a {_quoted(' '.join(words))}")
    for verb in TARGETED:
        used = _quoted(f"__fish_seen_subcommand_from {verb}")
        lines.append(f"complete -c intercom -n {used} -a '(command intercom completion words 2>/dev/null)'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text of ours in single quotes, for zsh and fish."""
    return "'" + text.replace("'", QUOTE) + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
