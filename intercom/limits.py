"""Name every limit, time-out and default once, with its unit and its meaning.

A name ends in its unit: ``_MS`` milliseconds, ``_S`` seconds, ``_BYTES`` bytes; without one it is a count.
``Limits`` holds the ones the rules of the core work with, so that a test can hand in smaller ones.
"""

from __future__ import annotations

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS

# --- frames ---------------------------------------------------------------------------------------------

HEADER_BYTES = 4
"""Length prefix of a frame: an unsigned big-endian 32-bit count of payload bytes."""
FRAME_BYTES = 4 * MIB
"""Largest inbound frame of a registered session."""
FRAME_CEILING_BYTES = 64 * MIB
"""Largest value the setting for ``FRAME_BYTES`` may take; what a client accepts from a broker."""
UNREGISTERED_FRAME_BYTES = 1 * MIB
"""Largest inbound frame before ``register``."""
UNREGISTERED_TOTAL_BYTES = 64 * MIB
"""Buffered input of all unregistered connections together."""
STEPPED_BYTES = 256 * KIB
"""A larger frame is decoded in steps, between which others are served."""
NESTING = 256
"""Deepest nesting of arrays and objects in a frame; deeper is treated as invalid JSON."""
NESTING_ADDED = 8
"""Levels that the broker may put around what it was given: clients read so much more, whoever gave it."""
NUMBER_DIGITS = 4_000
"""Longest run of digits in a frame; Python refuses to read integers beyond 4 300."""
GREAT_NUMBERS = 1_024
"""Most numbers in a frame that are close to what a double holds, or have a hundred digits: each takes up to 8 µs.

Those with four digits in their exponent count as well, whatever these are."""
READ_VALUES = 16_384
"""Most values of a frame or message that is wrong which are all read; of more only what stands outermost is."""
RARE_FRAMES = 8
"""Frames beside those of a plain session that a process reads one by one before it makes itself ready for all."""
QUOTED_CHARS = 160
"""Most of a peer's or a parser's text that is quoted in the sentence of a protocol error."""
HEALTH_ID_UNITS = 128
"""Longest ``health.requestId``, in UTF-16 code units."""

REQUEST_ID_CHARACTERS = 128
"""Longest ``requestId`` of the frames of a feature."""
PUSH_WAY_CHARACTERS = 32
"""Longest word for the way by which what hosts a session shows it messages."""
TOKEN_CHARACTERS = 32
"""Shortest token a client may make for an address it creates."""
LONGEST_VALIDITY_MS = 366 * 24 * 60 * MINUTE_MS
"""Longest time a message may be said to be valid."""
TASK_HINT_CHARACTERS = 200
"""Where a task hint is cut."""

# --- watches and spawning: the wire and the server ------------------------------------------------------

WATCH_SUBJECTS = 64
"""Things one watch may name."""
SPAWN_PROMPT_CHARACTERS = 262_144
"""Longest prompt of a session that is to be started."""
SPAWN_TOKEN_CHARACTERS = 128
"""Longest ``spawnToken`` of a registration that is looked at."""
SPAWN_LOOK_MS = 1_000
"""Pause between two looks for the end of commands that were started, where the kernel does not announce it."""
SPENT_TOKENS = 1_024
"""Used ``spawnToken`` a broker remembers, so that showing one again is no news."""
SPAWN_KINDS = 64
"""Kinds of sessions the settings may name."""

# --- a link between broker and client -------------------------------------------------------------------

UNSENT_BYTES = 64 * MIB
"""Output waiting for one reader that does not read; above it the connection is destroyed."""
UNCOMMITTED_FRAMES = 128
"""Frames of one connection that may wait for the broker's own commit before it stops reading."""
UNCOMMITTED_BYTES = 4 * MIB
"""The same in bytes; one frame is always admitted."""
READ_BYTES = 256 * KIB
"""Most that one read takes from a socket."""
CLIENT_READ_BYTES = 64 * KIB
"""Most that one read of a client takes; it goes through one buffer of this size per connection."""
SEND_BYTES = 256 * KIB
"""Small frames are joined up to this size before they are handed to the kernel."""
FINISH_MS = 2_000
"""A connection that was finished is closed when its peer took nothing and said nothing for this long."""
LISTEN_BACKLOG = 1_024
"""Connections the kernel keeps waiting for the broker to accept."""
ACCEPT_BATCH = 64
"""Connections accepted in a row before the others are served."""
ACCEPT_PAUSE_MS = 100
"""Pause in accepting while the process is out of file descriptors or memory."""

# --- workflow stages and restoring recipients -----------------------------------------------------------

STAGE_KEYS = 2
"""Most keys of one live stage: its id and its name."""
STAGE_TARGET_CHARACTERS = 4_096
"""Longest target of a workflow stage; a longer text is none."""
SUPERVISOR_CHARACTERS = 4_096
"""Longest name of a child, and longest capability, that a supervisor may have kept."""
RESTORING_ALIASES = 4
"""Most alias ids of one reserved restoring recipient."""
RESTORING_GROUP_CHARACTERS = 4_096
"""Longest group name a recipient is reserved in."""
RELEASE_TEXT_CHARACTERS = 1_000
"""What is kept of the text an owner gives for a recipient that does not come back."""
WHOLE_NUMBER_MAX = 2**53 - 1
"""Largest count on the wire that every JSON reader reads exactly."""

# --- links ----------------------------------------------------------------------------------------------

LINK_NAME_CHARACTERS = 128
"""Longest id or code that a worker or the sender of a command chooses."""
LINK_DETAIL_CHARACTERS = 1_000
"""Longest explanation of a rejected or failed command."""
LINK_PAGE_CEILING = 1_000
"""Most commands that are told at once."""
LINK_BODY_BYTES = 256 * KIB
"""Largest body of a durable event or a command."""
LINK_PAGE = 100
"""Commands that are asked for at once unless the caller says otherwise."""
LINK_AHEAD_FRAMES = 64
"""Durable events our client writes ahead of their acknowledgements."""
LINK_AHEAD_BYTES = 1 * MIB
"""The same in bytes of their bodies; one is always written."""
DRAIN_MS = 5_000
"""How long ``broker drain`` lets what is open go on unless it is told otherwise."""
DRAIN_CEILING_MS = 24 * 60 * 60 * 1_000
"""Longest such time."""
LINK_CONFIRM_MS = 30_000
"""How long our client waits for the broker to confirm that it is ready for its link."""
LINK_HEARTBEAT_MS = 10_000
"""Pause between two signs of life that our client gives on its link."""
COMMAND_IDS_KEPT = 1_000
"""Settled commands a worker remembers, so that one that comes again is not begun again."""
JOURNAL_SHORTENED_BYTES = 1 * MIB
"""Size from which the journal of a worker is shortened, once the broker has all its events."""
LINK_EVENTS_PAGE = 16
"""Most durable events that are told at once, with their bodies."""

# --- inbox and assignments ------------------------------------------------------------------------------

RUN_TEXT_CHARACTERS = 1_000
"""Longest summary, or error, that is reported of a run."""
IDEMPOTENCY_KEY_CHARACTERS = 128
"""Longest key by which a client names an order, a report or a reply."""
INBOX_WAIT_MAX_MS = 3_600_000
"""Longest wait for work that a client may name."""
WORK_DETAIL_CHARACTERS = 1_000
"""Longest reason a worker may give."""
WORK_PAGE_CEILING = 1_000
"""Most parked messages or assignments that are told at once."""
PREVIEW_CODE_POINTS = 80
"""How much of a parked message a list shows."""
PREVIEWS_READ = 32
"""Parked messages that are read at once for the beginnings of their texts."""
INBOX_ENTRIES = 256
"""Messages that may be parked."""
INBOX_ENTRIES_RANGE = (1, 10_000)
"""Least and greatest value of the setting for ``Limits.inbox_entries``."""

# --- flows ----------------------------------------------------------------------------------------------

FLOW_RECONCILE_RANGE_MS = (250, MINUTE_MS)
"""Least and greatest value of the setting for ``Limits.flow_reconcile_ms``."""
FLOW_TODO_GATE_RANGE_MS = (1, 24 * 60 * MINUTE_MS)
"""Least and greatest value of the setting for ``Limits.flow_todo_gate_ms``."""
FLOW_END_GRACE_RANGE_MS = (1, 5 * MINUTE_MS)
"""Least and greatest value of the setting for ``Limits.flow_end_grace_ms``."""
FLOW_ADMISSIONS_RANGE = (1, 100)
"""Least and greatest value of the setting for ``Limits.flow_admissions``."""
FLOW_RECONCILE_MS = 2_000
FLOW_TODO_GATE_MS = 30_000
FLOW_END_GRACE_MS = 5_000
FLOW_ADMISSIONS = 5
"""Defaults of the settings for the members of ``Limits`` with these names."""
FLOW_SUMMARY_BYTES = 8 * KIB
"""Longest summary of a report, and longest reason of a retry or cancellation."""
FLOW_TEXT_COLUMNS = 120
"""Most of a prompt or summary that the table of a flow shows, in terminal columns."""
FLOW_RESOURCES = 16
"""References one report may hold."""
FLOW_RESOURCE_BYTES = 2 * KIB
"""Longest reference."""

# --- work at the client ---------------------------------------------------------------------------------

WORK_REQUEST_MS = 30_000
"""Time for a report, a reply or an order about work; over a broker that dies meanwhile it is repeated."""
REQUEST_RETRY_MS = 1_000
"""Pause before a request is repeated that was refused with the advice to try again."""
WORK_PAGE = 50
"""Parked messages or assignments that are asked for at once unless the caller says otherwise."""
AWAIT_MS = 25_000
"""Longest single request of a worker that waits for work; longer waits are several of them."""
ACCEPT_MARGIN_MS = 1_000
"""Work whose time to be accepted ends sooner than this is not shown to the worker any more."""
ASSIGNMENTS_KEPT = 64
"""Assignments that wait for the worker; a further one is not confirmed, so that it goes back to the inbox."""
ASSIGNMENT_IDS_KEPT = 4_096
"""Assignments by whose id a copy is known as a copy."""

REPORTS_KEPT = 64
"""Reports the broker has that an address remembers, to know a repetition."""
REPORT_PUMP_MS = 2_000
"""Pause between two attempts of a client to bring what it has written down and the broker has not."""
REPORT_FILE_BYTES = 256 * KIB
"""Largest file that is taken for a report."""

# --- lifecycle of the broker ----------------------------------------------------------------------------

ADDRESS_LEFT_MS = 60 * 60_000
"""From which length on the end of a session's hold of an address is recorded; shorter ones began recently anyway."""
IDLE_MS = 5_000
"""A broker without a session leaves this long after the last activity."""
FIRST_VISIT_MS = 1_000
"""A broker that has just begun stays this long, however short ``IDLE_MS`` is set: who started it looks in pauses."""
IDLE_RECHECK_MS = 100
"""Pause before the idle check looks again while a young connection has not said what it is."""
UNCLASSIFIED_PROTECTS_MS = 5_000
"""Age up to which a connection that has sent nothing keeps the broker alive."""
PROBE_MS = 1_000
"""How long a probe waits for an answering broker."""
LOCK_WAIT_MS = 10_000
"""How long a starting broker waits for the lock of its home."""
LOCK_POLL_MS = 20
"""First pause between two attempts on a held lock; doubles up to LOCK_POLL_MAX_MS."""
LOCK_POLL_MAX_MS = 160
OWNERSHIP_CHECK_MS = 1_000
"""Pause between two looks at the inode of socket and lock."""
STOP_FLUSH_MS = 1_000
"""At shutdown: time for committed frames to reach the kernel, all connections together."""
STOP_TOTAL_MS = 2_000
"""At shutdown: the process is gone within this time."""
PROCESS_EXIT_MS = 200
"""After a connection was lost: how long the process behind it may take to end before it is taken to live."""
STOP_RESERVE_MS = 300
"""The part of STOP_TOTAL_MS that is kept for closing the store and giving the home back."""
DESCRIPTORS = 65_536
"""Open files the broker asks for, as far as the system's hard limit allows."""
LARGEST_FILE_BYTES = 256 * MIB
"""Largest file a broker must be allowed to write: a full table of operations with its write-ahead log stays below."""
COLLECT_YOUNG = 50_000
"""New objects after which the broker looks for cycles among them."""
COLLECT_MIDDLE = 20
"""Such looks after which it looks at what survived the last ones."""
COLLECT_OLD = 1_000
"""Looks at those after which it walks through everything."""
WATCHDOG_TICK_MS = 1_000
"""Pause between two ticks of the watchdog thread."""
WATCHDOG_LATE_MS = 500
"""A tick later than this is not counted: the process was stopped or suspended."""
WATCHDOG_BLOCKED_MS = 5
"""Less of the processor than this between two ticks: the process waits for something else."""
WATCHDOG_TICKS = 15
"""Counted ticks without a sign of the event loop after which the watchdog ends the process."""
STDERR_BYTES = 8_192
"""Most a broker process writes to standard error in its life."""
LOG_BYTES = 1 * MIB
"""Size at which the log is rotated."""
LOG_FILES = 3
"""Log files kept, the current one included."""
LOG_REPEAT_MS = MINUTE_MS
"""A line that says the same again within this time is only counted."""
LOG_REPEATS_KEPT = 64
"""Different lines that are watched for repeats at once."""
LOG_TEXT_BYTES = 4 * KIB
"""Longest text of one member of a log line; the rest is cut off."""
LISTEN_ATTEMPTS = 5
"""Binds in a row that may find the path in use again before a start gives up."""

# --- the store ------------------------------------------------------------------------------------------

KEY_BYTES = 32
"""Size of the key file."""
BUSY_MS = 5_000
"""SQLite's wait for a lock on the database."""
OPEN_BUSY_MS = 1_000
"""The same while it is opened: who waits for a broker should hear in time that another program holds it."""
INLINE_SYNC_US = 300
"""The event loop commits by itself while the median sync takes less than this many microseconds."""
LINGER_US = 100
"""How long a commit of nothing but acceptances waits for input that it could share its sync with, in microseconds."""
RECALL_ROWS = 2_000
"""Operations that are read back at a start; of a larger table those that nobody waits for are read after it, so many at
a time."""
APPEND_US = 3
"""What each append adds to the time of a commit beside the sync, in microseconds."""
SYNC_SAMPLES = 64
"""Syncs the median is taken over."""
LONG_SYNC_US = 5_000
"""Two syncs that take so long shortly after one another keep the event loop from committing by itself."""
LONG_SYNC_SAMPLES = 4
"""Syncs that is looked for among."""
HEAD_INTERVAL_MS = 1_000
"""Least time between two writes of the file that says how far the journal got."""
CHECKPOINT_PAGES = 1_000
"""Pages of 4 KiB in the write-ahead log after which a commit moves them into the database."""
CHECKPOINT_AHEAD_PAGES = 200
"""The same after which a thread begins to, so that little is left to do for that commit."""
PAGES_OF_COMMIT = 4
"""What a commit adds to the log at least, on the average, in pages."""
APPENDS_IN_PAGE = 4
"""Appends of one commit that need a page more, on the average."""
CACHE_KIB = 8_192
"""Memory SQLite may use for pages of the database, in KiB."""
ROWS_AT_ONCE = 8
"""Rows that one statement inserts; twice as many gain nothing."""
RANDOM_IDS = 64
"""Ids of which the broker fetches the random bits at once."""

# --- files and settings ---------------------------------------------------------------------------------

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux, without the closing NUL."""
SOCKET_PATH_BYTES_MACOS = 103
"""The same on macOS."""
RECEIPT_WAIT_MS = 8_000
"""How long a sender waits for its recipient's receipt."""
IDLE_RANGE_MS = (50, 7 * 24 * 60 * MINUTE_MS)
"""Least and greatest value of the setting for ``IDLE_MS``."""
RECEIPT_WAIT_RANGE_MS = (100, MINUTE_MS)
"""Least and greatest value of the setting for ``Limits.receipt_wait_ms``."""
ASK_RANGE_MS = (SECOND_MS, 24 * 60 * MINUTE_MS)
"""Least and greatest value of the setting for ``Limits.ask_ms``."""

# --- clients --------------------------------------------------------------------------------------------

CONNECT_MS = 10_000
"""Time for connecting and registering."""
REQUEST_MS = 5_000
"""Time for the answer to ``list``, groups, presence and supervisor requests."""
SEND_MS = 10_000
"""Time for the final answer to one attempt of a send."""
ASK_MS = 600_000
"""Default and longest wait for the answer to an ask."""
RETRY_IDENTITY_MS = 660_000
"""How long a client may retry a send under the same message id."""
PENDING_REPLY_RETRY_MS = 15_000
"""After a reconnect: how long a refused reply to an open question is tried again."""
RECONNECT_DELAYS_MS = (1_000, 2_000, 5_000, 10_000, 30_000)
"""Pauses before reconnect attempts; the last one repeats. The first attempt is made at once."""
COMING_BACK_MS = 1_500
"""Age of a broker up to which a target that is not there may be a session of the one before it, on its way back."""
RECONNECT_LOOK_MS = 400
"""Pause between two looks for a broker that somebody else started, while this client waits to start one itself."""
SEND_RETRY_MS = 200
"""Pause before the same message id is sent again after an answer that invites a retry."""
READY_MS = 5_000
"""Time for a started broker to answer."""
STARTING_MS = 15_000
"""Longest wait for a broker that somebody is still starting."""
READY_POLL_MS = 10
"""First pause between two looks for a starting broker; doubles up to READY_POLL_MAX_MS."""
READY_POLL_MAX_MS = 100
CONTROL_TALKS = 3
"""Connections in a row that may end before the answer to ``health`` or ``broker_status``."""
DISCONNECT_MS = 2_000
"""Time for a polite goodbye before the socket is destroyed."""
ENDED_RUNS_KEPT = 1_000
"""Workflow runs a session owned and ended whose capabilities it remembers, to own them again."""
RECONNECT_PATIENCE = 3
"""Broker starts that may fail in a row before a client says so instead of trying again."""
SEEN_IDS = 10_000
"""Message ids a client remembers to recognise copies."""
INCOMING_MESSAGES = 1_000
"""Messages a client holds for its consumer; beyond it reading stops."""
ATTACHMENTS_BYTES = 3 * MIB
"""Text and attachments of one message, checked before sending."""
LOG_TAIL_BYTES = 8_192
"""How much of a broker's error output is quoted when it failed to start."""
STABLE_MS = 1_000
"""A connection that lived this long was a good one: after its end the first reconnect is made at once."""
REBIND_MS = MINUTE_MS
"""After a reconnect: how long an open ask is sent again while its target has not come back."""
REBIND_RETRY_MS = 1_000
"""Pause between two such attempts."""
START_GRACE_MS = 500
"""After a started broker has ended: how long another one may still turn up."""
WITHDRAWN_ASKS = 256
"""Asks given up while offline that are remembered, to be withdrawn after the reconnect."""
DOUBTFUL_SENDS = 1_024
"""Messages of a session that may have arrived, although nothing says so, that are remembered for repetitions."""
REATTACH_ATTEMPTS = 2
"""Connections that may end in a row without an answer to a reattach before the session registers instead."""
FORMER_IDS = 64
"""Earlier ids of itself that a session remembers."""
MAILBOX_PAGE = 100
"""Entries of a mailbox that are told at once unless more are wanted."""
MAILBOX_PAGE_CEILING = 1_000
"""Most entries that are told at once."""
ADDRESS_SEEN_IDS = 2_000
"""Messages of an address that are recognised as copies after a restart; the file may hold twice as many."""
IDENTITY_FILE_BYTES = 4 * KIB
"""Largest file that is taken for the token of an address."""
NAME_CHARACTERS = 128
"""Longest name our own client registers under."""
CLAIM_CHARACTERS = 4_096
"""Longest status and model our own client tells of itself: every peer gets it, and it must fit into ``register``."""
LOG_TAIL_LINES = 10
"""Most lines of a broker's error output that are quoted."""
HEARTBEAT_MS = 30_000
"""Silence of the broker after which a session asks whether it is still there."""
HEARTBEAT_LOOK_MS = 3_000
"""Pause between two looks for the answer."""
HEARTBEAT_LOOKS = 5
"""Looks that came in time and found nothing, after which the connection counts as broken."""
HEARTBEAT_LATE_MS = 1_000
"""A look later than this is not counted: the process was stopped or suspended."""
WATCHED_KEPT = 1_000
"""Things a watch of a client keeps for its program; then it is ended at the broker until they were taken."""
SPAWN_WAIT_MS = 40_000
"""How long a client waits for a session that it has ordered, by default."""
EVENTS_KEPT = 1_000
"""Events a client holds for one listener; beyond it the oldest are dropped."""
SUPERVISOR_RETURN_MS = 3_000
"""After a reconnect: how long a child waits for its supervisor to return before it registers without it."""
SUPERVISOR_RETRY_MS = 200
"""Pause between two such attempts."""
STAGE_LIVE_MS = 25_000
"""Default wait of a session that goes live as a stage: two owner answers may come before its own."""
STAGE_RETRY_MS = 500
"""Pause before a stage tries again whose run has no owner yet, or whose place is still taken."""
STAGE_RETURN_MS = 30_000
"""How long a stage that lost its connection tries to go live again before it goes on as an ordinary session."""
STAGE_REQUESTS = 1_000
"""Requests of one run that its host has not looked at; further ones are refused."""
HELD_SENDS_KEPT = 100
"""Held sends of which a session keeps the outcome until it is asked for; the oldest settled one goes first."""

# --- the command ----------------------------------------------------------------------------------------

CONTEXT_FRESH_MS = 10 * MINUTE_MS
"""How long `list` shows what a session told of the context of its model; it changes with every step."""
EARLIER_HOME_MS = 2_000
"""How much older than its broker a home must be for ``list`` to think of sessions of a broker before this one."""
SHORT_ID_CHARACTERS = 8
"""Beginning of a session id that is shown, and that a send accepts."""
CELL_COLUMNS = 48
"""Widest cell of a table for people, in terminal columns."""
CUT_CELL_COLUMNS = 10
"""What stays at least of a cell that is cut because the terminal is narrow."""
CUT_NAME_COLUMNS = 20
"""What stays at least of a name that is cut so that no column has to be left out."""
WAIT_CEILING_S = 604_800
"""Longest time that ``--timeout`` may name."""
ANSWER_COMMAND_MS = ASK_MS
"""How long the command of ``listen --answer`` may take for one question: nobody waits longer."""
ANSWER_POLL_MS = 5
"""First pause between two looks at that command; doubles up to ANSWER_POLL_MAX_MS."""
ANSWER_POLL_MAX_MS = 50
ANSWER_VARIABLE_CHARACTERS = 1_024
"""Longest name or id handed to that command in its environment; a longer one is cut."""
STOP_WAIT_MS = 10_000
"""How long ``stop`` waits for the broker's process to be gone."""
GONE_POLL_MS = 20
"""Pause between two looks for a process that is ending."""
DEMO_STEP_S = 10
"""Longest wait for one step of ``demo``."""
NEAR_NAMES = 3
"""Similar names that are offered when a target was not found."""
ADDRESS_DIGITS = 16
"""Digits that tell the address of a command without a name from others."""
OLD_MAIL_MS = 5 * MINUTE_MS
"""Age from which a message is shown with its age."""
PREFIX_CHARACTERS = 4
"""Shortest beginning of a session id that the command takes for one; less is too easily something else."""
REMEMBERED_IDENTITIES = 1_000
"""Identities of a home whose groups are remembered; those that joined longest ago go first."""
RETURN_WAIT_MS = 15_000
"""How long ``restart`` waits for the sessions to come back to the new broker."""
LOG_LINES = 20
"""Lines that ``log`` shows unless told otherwise."""
LOG_LINES_CEILING = 100_000
"""Most lines that ``log`` takes for ``--lines``."""
WATCH_POLL_MS = 200
"""Pause between two looks of ``watch`` whether its time is over or its reader has gone."""
LOG_POLL_MS = 200
"""Pause between two looks of ``log --follow`` for new lines."""
COMPLETION_MS = 300
"""How long the completion of a word waits for the names of sessions."""
DISK_FULL_BYTES = 64 * KIB
"""Free space of the home's disk below which a broker can neither begin nor say why."""
DISK_LOW_BYTES = 64 * MIB
"""Free space of the home's disk below which ``doctor`` warns."""
ME_POLL_MS = 1_000
"""Pause between two looks of ``me --follow`` for what waits for the person."""
NOTIFY_COMMAND_MS = 5_000
"""How long the command of the setting ``notify_command`` may take for one notification."""
DESCRIPTORS_LOW = 64
"""Open files a broker started from here needs at least to serve a few sessions."""

# --- inside agent hosts: hooks and installing -----------------------------------------------------------

HOOK_MS = 1_000
"""How long a hook may run in all; then it ends without a word."""
HOOK_ANSWER_MS = 800
"""How long a hook waits for one answer of the adapter of its session."""
REWAKE_LOOK_MS = 30_000
"""How long the hook that wakes an idle session looks for the adapter, which may have begun later than the session."""
REWAKE_LOOK_PAUSE_MS = 250
"""Pause between two such looks."""
HOOK_CONNECT_MS = 800
"""How long a hook without an adapter waits for the broker, except where it starts one."""
HOOK_START_MS = 700
"""How long the hook of a session's start waits for a broker that it starts; the broker goes on after that."""
HOOK_TEXT_CHARACTERS = 8_000
"""Most that one hook puts before a model: hosts put longer texts into a file."""
TOLD_FRAME_CHARACTERS = 600
"""What the heading and the end around one message may take of it."""
HOOK_INPUT_BYTES = 16 * MIB
"""Most that a hook reads of what its host tells; the rest is thrown away."""
HOOK_ENTRY_S = 5
"""Time-out that is entered with a hook: the host ends one that runs longer."""
HOOK_LAST_ENTRY_S = 3
"""The same for the end of a session, where Codex allows no more."""
REWAKE_ENTRY_S = 3_600
"""The same for a hook that waits for mail in order to wake an idle session."""
REWAKE_MS = 3_590_000
"""How long such a hook waits: less than its host gives it."""
HOST_TOOL_S = 300
"""Time for one tool call that is entered where a host has a time limit of its own."""
HOST_TOOL_LONG_S = 120
"""The same for OpenCode."""
HOST_FILE_BYTES = 16 * MIB
"""Largest file of a host that is edited."""
HOST_PROBE_MS = 60_000
"""How long ``doctor --probe`` waits for a marked message to be shown to a model."""
HOST_PROBE_POLL_MS = 250
"""Pause between two looks whether it was."""


# --- waits, policies and the guard against loops --------------------------------------------------------

CIRCLE_NAMES = 6
"""Most parties between the target and the asker that a refused ask names."""
WAITS_TOLD = 1_000
"""Most waits that are told at once."""
POLICY_RULES = 64
"""Rules of one policy."""
POLICY_TEXT_CHARACTERS = 256
"""Longest name or group in a rule of a policy."""

GROUPS_CEILING = 64
"""Groups one session may be in."""

# --- agent hosts: the adapter ----------------------------------------------------------------------------

ANSWER_KEPT_MS = 7 * 24 * 60 * MINUTE_MS
"""How long an answer waits on disk for an adapter of the session that asked."""
ANSWER_FILE_BYTES = 16 * MIB
"""Largest file that is taken for an answer: a message, which cannot be larger than a frame, and its sender."""
SEAT_DIGITS = 4
"""Digits of its address in the visible name of a host's session."""
SEAT_FOLDER_CHARACTERS = 40
"""Most of the name of its folder in it."""
MARK_DIGITS = 8
"""Digits of the random mark that ends what a peer wrote."""
TOLD_CHARACTERS = 8_000
"""Most that is put before a model at once; hosts cut or spill what is longer (Codex at about 12 000)."""
TOLD_LEAST_CHARACTERS = 200
"""Least room for the text of one message in it."""
TOOL_WAIT_MS = 50_000
"""How long a tool waits for an answer or a message unless told otherwise: within the time limit of every host."""
TOOL_WAIT_MOST_MS = 280_000
"""Most a model may ask a tool to wait: within what Codex CLI allows by default."""
TOOL_WORD_MS = 3_000
"""Time for which a tool waits to hear whether the broker takes a question, however short it is to wait (ms)."""
KNOWN_MESSAGES = 1_000
"""Messages an adapter remembers so that an agent can name them by the beginning of an id."""
TOOL_REPEATS = 64
"""Messages with an unknown outcome that an adapter repeats under their ids when they are sent again."""
CAUSE_MS = 5 * MINUTE_MS
"""How long what an agent sends counts as caused by the message it was shown last."""
FETCH_MS = 2_000
"""How long mail that waits without waking may take to arrive once it was asked for."""
WORK_LEAST_WAIT_MS = 1_000
"""How long a tool asks for work that is there already."""
TOOL_PROGRESS_MS = 10_000
"""Pause between signs of life of a tool that waits, for hosts whose time limit they extend."""
PERSON_ASK_MS = 24 * 60 * MINUTE_MS
"""How long a question that an agent asks the person stays open."""
TOOL_LIST_ENTRIES = 100
"""Most sessions, and most addresses, that the tool ``list`` names."""
BELL_PAUSE_MS = 3_000
"""Least pause between two bells of a session; Claude Code drops events that come faster than one in 2 s."""
BELL_CHARACTERS = 450
"""Longest bell; Claude Code cuts an event at 500 characters."""
BELL_NAMES = 3
"""Senders that a bell names."""
ADAPTER_GOODBYE_MS = 1_500
"""Time an adapter takes at its end for its goodbye; then the process is gone."""
ADAPTER_RETRY_MS = 5_000
"""Pause before an adapter tries again to open a session that could not be opened."""
ADAPTER_OPEN_MS = 10_000
"""How long a tool waits for the session of its adapter."""
HOST_LOOK_MS = 1_000
"""Pause between two looks whether the host is still there, where the kernel does not tell."""
SESSION_NOTE_WAIT_MS = 400
"""How long an adapter waits for a hook to tell which session it is in, where hooks know better than it does."""
SESSION_NOTE_POLL_MS = 20
"""Pause between two looks for that note."""
SEAT_LOOK_MS = 500
"""How long the broker may take to say whether a seat that is to be left owes anybody anything; else it stays."""
SESSION_LOOK_MS = 1_000
"""Pause between two looks whether a host is in another session by now."""
SESSION_NOTE_AGE_MS = 60 * MINUTE_MS
"""Age beyond which a note of a session is taken for a leftover when there is no such process."""
DOOR_STEP_MS = 5_000
"""Time an adapter has to take a request of the bell."""
BELL_FIND_MS = 30_000
"""How long the bell looks for the adapter of its host, which may start later than it."""
BELL_FIND_POLL_MS = 100
"""Pause between two looks."""
DOOR_LINE_BYTES = 64 * KIB
"""Longest request of a hook to its adapter."""
DOOR_ANSWER_BYTES = 1 * MIB
"""Longest answer of an adapter to a hook."""
DOOR_CONNECTIONS = 64
"""Hooks and bells that one adapter serves at a time."""
STOP_REMINDERS = 2
"""How often a question that was shown and not answered keeps a host from stopping."""
STOPS = 4
"""How often in a row a host is kept from stopping, whatever comes meanwhile."""
SUBAGENTS = 64
"""Subagents of one host session that have an identity of their own at a time."""
SUBAGENT_CHARACTERS = 8
"""Characters of the id of a subagent in its visible name."""
JOINED_CALLS = 1_000
"""Tool calls of subagents that a hook announced and that have not come."""
HOST_PUSH_MS = 5_000
"""Time for handing a bell to a host."""

# --- clusters --------------------------------------------------------------------------------------------
MESH_KEY_BYTES = 32
"""Length of the key that the brokers of a cluster share."""
CLUSTER_LEASE_MS = 15_000
"""A broker that did not renew its lease for this long is away."""
CLUSTER_RENEW_MS = 5_000
"""Pause between two renewals of the lease of a broker."""
CLUSTER_ANSWER_MS = 2_000
"""How long the engine may take to answer before the connection to it is given up."""
CLUSTER_CONNECT_MS = 2_000
"""How long one server of the engine may take to let a connection in."""
CLUSTER_PAUSE_MS = 250
"""Pause before the engine is tried again; doubles up to CLUSTER_PAUSE_MOST_MS."""
CLUSTER_PAUSE_MOST_MS = 5_000
CLUSTER_LOOK_MS = 1_000
"""Pause between two looks for leases that have ended."""
CLUSTER_NEXT_MS = 500
"""After this the next server of the engine is tried as well."""
CLUSTER_PING_MS = 1_000
"""Pause between two signs of life on the connection to the engine; two without an answer end it."""
CLUSTER_BEAT_MS = 2_000
"""Pause between two signs of life of what tells the changes of a bucket; three that do not come end the connection."""
CLUSTER_DIRECT_MS = 1_000
"""What the engine does not answer for so long is given to the broker it is for directly as well."""
CLUSTER_DIRECT_AGAIN_MS = 500
"""Pause before it is given to that again."""
CLUSTER_STAND_IN_MS = 500
"""A broker stands in for an engine that is not ready on a new connection after this time."""
CLUSTER_CALL_MS = 2_000
"""Pause between two calls of a broker that wants everything directly, as the engine hands it out nothing."""
CLUSTER_CALLED_MS = 5_000
"""How long such a call counts."""
CLUSTER_JUST_STORED_MS = 5_000
"""For how long that goes for what the engine has stored, too: it may not be able to hand it out."""
CLUSTER_JUST_STORED_BYTES = 1024 * KIB
"""How much of that is kept, the newest."""
CLUSTER_DUPLICATES_MS = 10 * MINUTE_MS
"""How long the engine tells a copy of what it was given."""
CLUSTER_TARGET_MS = 15 * MINUTE_MS
"""How long the engine keeps which brokers held a target last."""
CLUSTER_TARGET_BROKERS = 3
"""How many of them."""
CLUSTER_TARGETS_AT_ONCE = 16
"""Of how many targets that is written and read at one time."""
CLUSTER_GONE_MS = 24 * 60 * MINUTE_MS
"""How long a broker holds no lease before what it said of itself is taken out of the engine."""
CLUSTER_GONE_LOOK_MS = MINUTE_MS
"""Pause between two looks for such brokers."""
CLUSTER_MAIL_MS = 30 * MINUTE_MS
"""How long the engine keeps what a broker has not fetched."""
CLUSTER_REDELIVERY_MS = 30_000
"""The engine hands out again what was not settled in this time."""
CLUSTER_UNSETTLED = 256
"""What one broker may have fetched and not settled."""
CLUSTER_IN_FLIGHT = 1_000
"""What one broker may have given to the engine without an answer."""
CLUSTER_LETTERS = 64
"""What one broker puts into one envelope for another, if so much waits."""
CLUSTER_LETTERS_BYTES = 128 * KIB
"""Their bytes, unless one has more by itself."""
CLUSTER_PART_BYTES = 512 * KIB
"""What the engine is given at a time: a longer envelope goes in parts. Without settings an engine takes 1 MiB."""
RUN_TOLD_BYTES = 256 * KIB
"""What is told other brokers of the stages of one run; of one with more only that it is there."""
CLUSTER_PARTS = 64
"""Of how many parts an envelope may be, and of how many envelopes parts are kept whose others have not come."""
CLUSTER_BATCH = 256
"""What is asked of the engine at a time."""
CLUSTER_WISH_MS = 3_000
"""How long the engine keeps such a wish."""
CLUSTER_WISH_BEAT_MS = 1_000
"""Pause between two signs that it is kept; when two do not come it is lost with whoever kept it."""
CLUSTER_CLOSE_MS = 250
"""How long a connection to the engine may take to be closed before it is given up."""
CLUSTER_END_MS = 20
"""Pause between two requests that what uses the engine ends."""
CLUSTER_CHECK_MS = 15_000
"""How long a command waits for the engine."""
CLUSTER_NAME_CHARACTERS = 32
"""Length of the prefix of a cluster, and of the name of a machine in it."""
CLUSTER_REPLICAS = 5
"""Most servers of the engine that hold a copy."""


class Limits(Struct, frozen=True, kw_only=True):
    """Hold the numbers the core decides by; every field has its documented default."""

    asks: int = 256
    """Open questions one session may have asked."""
    groups: int = GROUPS_CEILING
    """Groups one session may be in."""
    unconfirmed_frames: int = 1_000
    """Frames without receipt per target identity."""
    unconfirmed_bytes: int = 8 * MIB
    """The same in bytes of their messages."""
    unconfirmed_total_frames: int = 10_000
    """Frames without receipt in all."""
    unconfirmed_total_bytes: int = 64 * MIB
    """The same in bytes of their messages."""
    capabilities_per_session: int = 1_000
    """Supervisor capabilities one session may hold."""
    capabilities: int = 10_000
    """Supervisor capabilities in all; the oldest goes first."""
    crossings: int = 10_000
    """Recorded supervisor messages whose reply may cross groups; the oldest goes first."""
    crossing_ms: int = 10 * MINUTE_MS
    """How long such a reply may come."""
    reservations_per_session: int = 1_000
    """Restoring recipients one session may reserve, markers of those that are gone included."""
    reservations: int = 10_000
    """Restoring recipients in all."""
    held_per_session: int = 100
    """Sends of one session that may wait for restoring recipients."""
    held_per_reservation: int = 100
    """Sends that may wait for one of them."""
    held: int = 1_000
    """Sends that may wait in all."""
    held_bytes_per_session: int = 8 * MIB
    """What one session's waiting sends may weigh."""
    held_bytes: int = 64 * MIB
    """What all waiting sends may weigh."""
    hold_ms: int = 120_000
    """How long a send waits whose sender was told so."""
    silent_hold_ms: int = 8_000
    """How long it waits when its sender does not understand that it waits."""
    routes_per_session: int = 1_000
    """Workflow runs one session may own."""
    roster_characters: int = 8 * MIB
    """What all runs of one owner may announce, in characters."""
    owner_answer_ms: int = 10_000
    """How long the owner of a run may take to decide about a message."""
    owner_requests_per_session: int = 256
    """Messages of one session that owners may be deciding about."""
    owner_request_bytes_per_session: int = 8 * MIB
    """What those may weigh."""
    owner_requests: int = 10_000
    """Messages that owners may be deciding about in all."""
    owner_request_bytes: int = 64 * MIB
    """What all those may weigh."""
    owner_decisions: int = 1_000
    """Decisions of owners that are remembered for those who ask what became of a message."""
    notification_answer_ms: int = 10_000
    """How long the recipient of a notification may take to accept it."""
    notifications: int = 1_000
    """Notifications that may wait for their recipients in all."""
    retired_ids: int = 10_000
    """Session ids remembered after their session left; the oldest goes first."""
    operations: int = 300_000
    """Rows of the idempotency table."""
    operation_bytes: int = 96 * MIB
    """Stored strings of all those rows."""
    sender_share: int = 4
    """One sender may hold at most one part in this many of rows and bytes."""
    operation_ttl_ms: int = 12 * MINUTE_MS
    """How long an operation is remembered, from its reservation."""
    evictable_after_ms: int = 15_000
    """Age from which an accepted row may give way when the table is full."""
    receipt_wait_ms: int = RECEIPT_WAIT_MS
    """How long a sender waits for its recipient's receipt."""
    standstill_ms: int = 60_000
    """From when on a list says that a session confirms nothing."""
    busy_ms: int = 2_000
    """How long a sender whose message may wait as mail is kept waiting for the receipt of somebody who is here."""
    ask_ms: int = ASK_MS
    """How long a question stays open."""
    grace_ms: int = 600_000
    """How long a session whose connection was lost may come back."""
    restart_grace_ms: int = 30_000
    """A session that was away when the broker ended has at least this long to come back to the next one."""
    late_ms: int = 1_000
    """The end of a grace that is noticed later than this came while the process stood still: nobody could come back."""
    presence_stored_ms: int = 10_000
    """Longest time until a change of what peers see of a session is on disk."""
    tombstone_ms: int = 7 * 24 * 60 * MINUTE_MS
    """How long a closed session is remembered."""
    mailbox_entries: int = 10_000
    """Messages that may wait in one mailbox."""
    mailbox_bytes: int = 64 * MIB
    """The same in bytes of their messages and senders."""
    mail_ttl_ms: int = 7 * 24 * 60 * MINUTE_MS
    """How long a message waits before its sender is told that it is undeliverable."""
    mailbox_full_retry_ms: int = 60_000
    """After which time a sender is told to try a full mailbox again."""
    mail_retry_ms: int = 1_000
    """Pause before mail is handed over again after its bodies could not be read, or its offer not be recorded."""
    mail_offers: int = 64
    """Entries of one mailbox that are handed over ahead of their receipts; more come when half are confirmed."""
    mail_offer_bytes: int = 1 * MIB
    """The same in bytes; one entry is always admitted."""
    mail_joined: int = 100
    """Entries of one sender that say the same and are handed over as one; together at most ``mail_offer_bytes``."""
    addresses: int = 10_000
    """Addresses of one broker."""
    address_idle_ms: int = 30 * 24 * 60 * MINUTE_MS
    """How long nobody must have held an address before it may give way to a new one, where there are too many."""
    known_sessions: int = 10_000
    """Sessions with a lifecycle that are remembered, closed ones included; closed ones go first, the oldest first."""
    history_kept_ms: int = 30 * 24 * 60 * MINUTE_MS
    """How long the history of what is over is kept."""
    tidy_ms: int = 60 * MINUTE_MS
    """Pause between two looks for bodies and history that had their time."""
    bodies_kept_ms: int = 24 * 60 * MINUTE_MS
    """How long the body of a message is kept after its mail was handed over or given up."""
    policies: int = 1_000
    """Parties for whom the person may have set a policy."""
    loop_free_hops: int = 16
    """How many messages may follow a first one, each caused by the one before, before the guard looks at them."""
    loop_hops: int = 64
    """How many may follow it in all."""
    loop_window_ms: int = MINUTE_MS
    """Time in which the guard counts."""
    loop_pair_messages: int = 20
    """Messages from one party to another, in chains that are looked at, within that time."""
    loop_root_messages: int = 60
    """Messages that go back to one first message, likewise."""
    loop_entries: int = 10_000
    """Messages, pairs and first messages that the guard remembers, each; the oldest go first."""
    dormant_target_ms: int = 60_000
    """After a restart: how long a returned asker waits for the other side to return."""
    inbox_entries: int = INBOX_ENTRIES
    """Messages that may be parked."""
    inbox_bytes: int = 256 * MIB
    """The same in bytes of their messages and senders."""
    inbox_pressure: int = 90
    """Percent of those from which the inbox is called under pressure."""
    accept_ms: int = 30_000
    """How long a worker may take to accept an assignment; 0: as long as it likes."""
    push_receipt_ms: int = 2_000
    """How long a hand-over waits for its receipt."""
    inbox_hold_ms: int = 25_000
    """How long one request for work is held at most."""
    sent_ids: int = 1_024
    """Message ids of its own that a worker is remembered by: an answer to one of them is a continuation."""
    order_ttl_ms: int = 24 * 60 * MINUTE_MS
    """How long the outcome of an order, a report or a reply is remembered."""
    keyed_outcomes: int = 100_000
    """Outcomes of orders, reports and replies that are remembered; the oldest goes first."""
    due_soon_ms: int = MINUTE_MS
    """A broker does not leave by itself while something is due within this time."""

    # --- watches and spawning
    watches_per_session: int = 64
    """Watches one session may have."""
    watches: int = 10_000
    """Watches in all."""
    watch_alive_ms: int = 15_000
    """Pause between two signs that a watch lives."""
    watch_unsent_frames: int = 1_000
    """Events of one watch its client may leave unread before the watch is ended."""
    watch_unsent_bytes: int = 1 * MIB
    """The same in bytes."""
    watch_page: int = 256
    """Events read from the journal at once for a watch that catches up."""
    watch_snapshot: int = 1_000
    """Most things a snapshot tells of."""
    spawns: int = 3
    """Sessions that may be started within ``spawn_window_ms``."""
    spawn_window_ms: int = 30_000
    """The time over which they are counted."""
    spawn_ms: int = 30_000
    """How long a session that was started may take to register."""

    # --- flows
    flows: int = 32
    """Flows that are not over."""
    flow_steps: int = 64
    """Steps of one flow."""
    flow_attempts: int = 10
    """Attempts of one step."""
    flow_prompt_bytes: int = 48 * KIB
    """Longest prompt."""
    flow_bytes: int = 4 * MIB
    """All prompts of one flow."""
    flow_label_characters: int = 256
    """Longest label of a to-do item."""
    flow_reconcile_ms: int = FLOW_RECONCILE_MS
    """Pause between two looks at the flows that have something to do."""
    flow_todo_gate_ms: int = FLOW_TODO_GATE_MS
    """How long a report of a completed step waits for what its to-do gates ask for."""
    flow_end_grace_ms: int = FLOW_END_GRACE_MS
    """How long a report may still come after other signs said that the work has ended."""
    flow_admissions: int = FLOW_ADMISSIONS
    """Vain attempts in a row to reach its target after which a flow fails; one a pause is counted."""
    flow_retention_ms: int = 30 * 24 * 60 * MINUTE_MS
    """How long a flow that is over is kept."""
    flows_collected: int = 32
    """Flows that are deleted at once."""
    flows_listed: int = 100
    """Flows that a list shows."""
    # --- links
    links: int = 1_000
    """Links that are remembered; those that nobody uses and that have no open commands go first, the oldest first."""
    link_frames: int = 128
    """Frames of one link that may wait for their turn, the one being handled included."""
    link_bytes: int = 4 * MIB
    """The same in bytes."""
    link_body_bytes: int = LINK_BODY_BYTES
    """Largest body of a durable event or a command."""
    link_ready_ms: int = 30_000
    """How long a worker may take to be ready for its link."""
    link_receipt_ms: int = 10_000
    """How long a command that is offered waits for its receipt."""
    link_retry_ms: int = 1_000
    """Pause before a link is tried again whose beginning could not be recorded, or whose command could not be read."""
    link_attempts: int = 10
    """Failures of one link within ``link_window_ms`` after which it rests."""
    link_window_ms: int = 10 * MINUTE_MS
    """The time over which they are counted."""
    link_drain_ms: int = 5_000
    """How long a worker is told it has when the broker stops."""
    drain_look_ms: int = 50
    """Pause between two looks whether what is in work has ended, while the broker drains."""
    link_events: int = 1_000
    """Durable events of one link that are remembered; the oldest go first."""
    link_commands: int = 1_000
    """Open commands of one link; as many that are settled are remembered, the oldest go first."""
    commands: int = 10_000
    """Open commands in all."""
    commands_bytes: int = 64 * MIB
    """The same in bytes of their bodies."""
    # --- invocations
    invocations: int = 10_000
    """Invocations that may be open."""
    invocations_kept: int = 50_000
    """Invocations that are remembered, open ones included; those that ended go first, the oldest first."""
    invocation_kept_ms: int = 14 * 24 * 60 * MINUTE_MS
    """How long an invocation that ended, and a diagnosis, is remembered."""
    diagnoses: int = 10_000
    """Diagnoses that are remembered; the oldest goes first."""
    diagnoses_shown: int = 50
    """Diagnoses of one invocation that a snapshot tells of, the newest."""
    candidates_shown: int = 20
    """Candidates that a diagnosis names."""
    invocation_bytes: int = 256 * 1024
    """Size of a task."""
    invocation_context_bytes: int = 256 * 1024
    """Size of what goes with a task as its context."""
    invocation_metadata_bytes: int = 4 * 1024
    """Size of the metadata of an invocation, as JSON."""
    invocation_labels: int = 16
    """Labels of one invocation."""
    invocation_word_characters: int = 256
    """Length of a label of an invocation, of a text of its ``execution``, and of its ``messageId``."""
    run_result_bytes: int = 1 * MIB
    """Size of an output."""
    run_text_characters: int = RUN_TEXT_CHARACTERS
    """Length of a summary and of an error."""
    job_lease_ms: int = 30_000
    """How long one attempt to hand a task over by writing it may take before it is tried again."""
    job_retry_ms: int = 5_000
    """Pause before a hand-over is tried again that could not be made, and between two looks at what is open."""
    run_stale_ms: int = 120_000
    """How long a run whose target is gone may wait for it to come back."""
    # --- other machines
    forward_ms: int = 5_000
    """How long another broker may take to answer an attempt."""
    peer_absent_ms: int = 5_000
    """Pause before a delivery is looked at again whose broker is not there."""
    peer_retry_ms: int = 2_000
    """Pause after the first attempt that failed, and the least after any; it doubles from attempt to attempt."""
    peer_retry_most_ms: int = 60_000
    """Longest of these pauses, before it is spread."""
    peer_retry_spread_percent: int = 25
    """By how much such a pause may be longer or shorter."""
    peer_window_ms: int = 30 * MINUTE_MS
    """How long a delivery is tried before it has failed."""
    peer_outcome_ms: int = MINUTE_MS
    """After which mail is brought once more to the broker its address is at home at, of which nothing was heard."""
    letters_refused: int = 10_000
    """Messages of other brokers that were refused, and of which a copy that comes late is known."""
    steps_never_taken: int = 1_000
    """Steps of other brokers' flows of which a copy that comes late is known."""
    peer_sessions: int = 10_000
    """Sessions of one other broker that are shown, and of all that left and are remembered."""
    peer_return_ms: int = 5_000
    """How long after the start of a broker what came for a session that is not there waits for it to come back."""
    peer_confirm_ms: int = 15_000
    """How long somebody elsewhere who asked may go unconfirmed by its broker."""
    claim_ms: int = 2_000
    """How long a registration waits until its address is claimed for this broker in the whole cluster."""
    part_ms: int = 500
    """How long a session that holds its address no more may take to confirm what it was done with, and leave."""
    look_ms: int = 2_000
    """How long a message waits for what other brokers say of an earlier acceptance of it."""
    looks_per_session: int = 100
    """Messages of one session that may wait for that."""
    look_bytes_per_session: int = 8 * MIB
    """What those may weigh."""
    looks: int = 1_000
    """Messages that may wait for it in all."""
    look_bytes: int = 64 * MIB
    """What all those may weigh."""
    target_told_ms: int = 5 * MINUTE_MS
    """Pause after which the engine is told again which targets are here."""
    announce_ms: int = 100
    """Pause between two announcements to other brokers of who is here."""
    announce_again_ms: int = 5_000
    """Pause after which it is looked for changes that nobody told of."""
