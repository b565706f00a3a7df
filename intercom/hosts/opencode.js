// intercom plugin for OpenCode: brings what other sessions write into the session that was active last.
// The adapter, which is the MCP server `intercom mcp` of this OpenCode process, does the talking; the plugin finds it by
// the process it belongs to, keeps a connection to it, and hands over what comes. Without an adapter it does nothing.
import { createConnection } from "node:net"
import { readFileSync, readdirSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"

const HOME = null
const TOOLS = "intercom_"
const LOOK_MS = 1000
const ANSWER_MS = 1000

function directory() {
  const named = process.env.INTERCOM_HOME
  if (named && named.trim()) return named.replace(/^~(?=\/|$)/, homedir())
  if (process.platform === "darwin") return join(homedir(), "Library", "Application Support", "intercom")
  const state = process.env.XDG_STATE_HOME
  return join(state && state.startsWith("/") ? state : join(homedir(), ".local", "state"), "intercom")
}

function adapter() {
  const folder = join(HOME || directory(), "adapters")
  let names
  try {
    names = readdirSync(folder)
  } catch {
    return null
  }
  for (const name of names) {
    if (!name.startsWith(`opencode-${process.pid}-`) || !name.endsWith(".json")) continue
    try {
      const record = JSON.parse(readFileSync(join(folder, name), "utf8"))
      process.kill(record.pid, 0)
      return record
    } catch {
      continue
    }
  }
  return null
}

// One connection on which requests are answered in their order, a line each.
function connect(record, onLine, onEnd) {
  const link = createConnection(record.socket)
  let unread = ""
  link.setEncoding("utf8")
  link.on("data", (data) => {
    unread += data
    let end
    while ((end = unread.indexOf("\n")) >= 0) {
      const line = unread.slice(0, end)
      unread = unread.slice(end + 1)
      try {
        onLine(JSON.parse(line))
      } catch {
        // a line that is not JSON says nothing
      }
    }
  })
  link.on("error", () => {})
  link.on("close", onEnd)
  link.unref()
  return { say: (request) => link.write(JSON.stringify(request) + "\n"), end: () => link.destroy() }
}

function ask(request) {
  const record = adapter()
  if (!record) return Promise.resolve(null)
  return new Promise((resolve) => {
    const timer = setTimeout(() => finish(null), ANSWER_MS)
    const link = connect(record, (answer) => finish(answer), () => finish(null))
    function finish(answer) {
      clearTimeout(timer)
      link.end()
      resolve(answer)
    }
    link.say(request)
  })
}

export const Intercom = async ({ client }) => {
  let session = null
  let children = new Set()
  let bell = null
  let ended = false

  async function show(line) {
    if (typeof line.text !== "string" || !session) return false
    const body = { parts: [{ type: "text", text: line.text }] }
    const answer = await client.session.promptAsync({ path: { id: session }, body })
    return !(answer && answer.error)
  }

  function listen() {
    if (ended || bell) return
    const record = adapter()
    if (!record || !session) return
    let showing = Promise.resolve()
    bell = connect(
      record,
      (line) => {
        showing = showing.then(async () => {
          // What was not taken is not confirmed: the connection ends, and the message comes again.
          if (!line.text) return
          if (!(await show(line).catch(() => false))) return bell && bell.end()
          if (line.batch !== undefined && bell) bell.say({ op: "done", batch: line.batch })
        })
      },
      () => {
        bell = null
      },
    )
    bell.say({ op: "bell", kind: "plugin", carry: true, session })
  }

  const timer = setInterval(listen, LOOK_MS)
  if (timer.unref) timer.unref()

  return {
    event: async ({ event }) => {
      const info = event.properties && event.properties.info
      if (event.type === "session.created" && info && info.parentID) children.add(info.id)
      const done = event.type === "session.idle" && event.properties && event.properties.sessionID
      if (done && children.has(done)) await ask({ op: "agent", what: "stop", agent: done })
      if (event.type === "session.deleted" && info && info.id === session) {
        await ask({ op: "bye", session, reason: "deleted" })
        session = null
      }
    },
    "chat.message": async (input) => {
      if (!input.sessionID || children.has(input.sessionID) || input.sessionID === session) return
      session = input.sessionID
      await ask({ op: "hello", session, source: "startup", cwd: process.cwd() })
      listen()
    },
    "experimental.chat.system.transform": async (input, output) => {
      if (input && input.sessionID && children.has(input.sessionID)) return
      const answer = await ask({ op: "hello", session, source: "resume", cwd: process.cwd() })
      const text = answer && answer.text
      if (text && typeof text === "string" && output && Array.isArray(output.system)) output.system.push(text)
    },
    // A tool call does not say which session makes it; only here is it known, and only by an argument can it be passed on.
    "tool.execute.before": async (input, output) => {
      if (!input || !children.has(input.sessionID) || !String(input.tool).startsWith(TOOLS)) return
      if (output && output.args && typeof output.args === "object") output.args._subagent = input.sessionID
    },
    "shell.env": async (input, output) => {
      const record = adapter()
      const seat = record && record.seats && record.seats.find((each) => each.address)
      if (seat && output && output.env && !process.env.INTERCOM_NAME) output.env.INTERCOM_NAME = seat.address
    },
    dispose: async () => {
      ended = true
      clearInterval(timer)
      if (bell) bell.end()
    },
  }
}
