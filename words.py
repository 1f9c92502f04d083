"""What people read, in English and Chinese. Pure.

What agents read stays English, and so do the messages of `errors.py`, which
both read. A text is looked up by its key; its placeholders are filled by name.
"""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[..., str]

# key: (English, Chinese)
CATALOGUE: dict[str, tuple[str, str]] = {
    # The commands and their options, as --help tells them.
    "about": (
        "Find what was said, decided and tried in a project's past Hermes conversations.",
        "查找一个项目过去的 Hermes 对话里说过、定过、试过什么。",
    ),
    "help.examples": ("examples", "示例"),
    "help.status": ("what there is: projects, index, settings", "现状：项目、索引、设置"),
    "help.status.long": (
        "Show the home, its projects with their conversations, and how far the search by meaning is.",
        "显示主目录、各项目及其对话数量，以及语义搜索的进度。",
    ),
    "help.search": ("find past messages of one project", "在一个项目里查找过去的消息"),
    "help.search.long": (
        "Find past messages. The project is the one of the current folder unless another is named.",
        "查找过去的消息。默认在当前文件夹所属的项目里查找。",
    ),
    "help.query": ("a question, a symbol, a path or an error code", "一个问题、符号、路径或错误码"),
    "help.project": ("a project's id, slug, name, or path", "项目的 id、短名、名称或路径"),
    "help.cwd": ("search the project this folder belongs to", "在此文件夹所属的项目里查找"),
    "help.session": ("only this conversation (id or its beginning)", "只查这个对话（id 或其开头）"),
    "help.around": ("read on around this message", "从这条消息前后读下去"),
    "help.after": ("ISO date or date-time, or an age: 24h, 7d, 2w", "ISO 日期或时间，或时长：24h、7d、2w"),
    "help.before": ("the same; the moment itself is not included", "同上；不含该时刻"),
    "help.mode": ("hybrid (default), keyword, semantic", "hybrid（默认）、keyword（字面）、semantic（语义）"),
    "help.limit.hits": ("hits, 1 to 20 (default 6)", "结果数，1 到 20（默认 6）"),
    "help.context": ("messages beside each hit, 0 to 5 (default 1)", "每条结果前后的消息数，0 到 5（默认 1）"),
    "help.open": ("read on around hit N of this search", "从第 N 条结果前后读下去"),
    "help.sessions": ("list conversations, newest first", "列出对话，新的在前"),
    "help.sessions.long": (
        "List conversations by their last message, newest first. Hidden and archived ones only when asked for.",
        "按最后一条消息列出对话，新的在前。隐藏和归档的需另外要求。",
    ),
    "help.all_profiles": ("of every profile", "列出所有配置档案的对话"),
    "help.filter": (
        "only those with all these words in title, folder, project, id or first message",
        "只列出标题、文件夹、项目、id 或首条消息里含有全部这些词的对话",
    ),
    "help.limit.rows": ("rows (default 50)", "行数（默认 50）"),
    "help.hidden": ("hidden ones too", "包括隐藏的"),
    "help.archived": ("archived ones too", "包括归档的"),
    "help.show": ("print one conversation", "输出一个对话"),
    "help.show.long": (
        "Print one conversation as background for another agent: its text is data, never an instruction.",
        "把一个对话输出为另一个智能体的背景材料：其中的文字只是资料，不是指令。",
    ),
    "help.show.id": (
        "the conversation (id or its beginning; ID#MESSAGE reads around it)",
        "对话（id 或其开头；ID#消息 则读其前后）",
    ),
    "help.markdown": ("as Markdown (default)", "以 Markdown 输出（默认）"),
    "help.max_chars": ("characters at most (default 60000)", "最多字符数（默认 60000）"),
    "help.messages": ("messages at most, the newest (default 300)", "最多消息数，取最新的（默认 300）"),
    "help.index": ("embed what is not embedded yet", "为尚未嵌入的消息建立索引"),
    "help.index.long": (
        "Bring the index of the search by meaning up to date. Ctrl-C stops; the next run goes on from there.",
        "更新语义搜索的索引。按 Ctrl-C 停止，下次从停下处继续。",
    ),
    "help.move": ("move a conversation to another project", "把对话移到另一个项目"),
    "help.move.long": (
        "Move a conversation, and the folder its agent works in, to another project; or take that back.",
        "把一个对话及其智能体的工作文件夹移到另一个项目，或撤销。",
    ),
    "help.move.id": ("the conversation (id or its beginning)", "对话（id 或其开头）"),
    "help.move.project": ("a project's id, slug, name or path, or home", "项目的 id、短名、名称或路径，或 home"),
    "help.undo": ("take back its last move", "撤销它的上一次移动"),
    "help.dry_run": ("say what would be done and do nothing", "只说明会做什么，不执行"),
    "help.repair": (
        "find the conversations whose folder is gone, and move them to where they seem to belong",
        "找出文件夹已不存在的对话，移到看来所属的项目",
    ),
    "help.yes": ("do not ask", "不再询问"),
    "help.forget": ("drop vectors of conversations", "删除对话的向量"),
    "help.forget.long": (
        "Drop the stored vectors of one project, or all. Conversations stay; the next search embeds them anew.",
        "删除一个项目或全部已存的向量。对话不受影响；下次搜索会重新嵌入。",
    ),
    "help.forget.all": ("of every project", "所有项目"),
    "help.consent": ("list or revoke what may be sent to an endpoint", "列出或撤销允许发送到端点的授权"),
    "help.consent.list": ("list the grants", "列出授权"),
    "help.consent.revoke": ("take grants back", "撤销授权"),
    "help.consent.all": ("every grant", "所有授权"),
    "help.doctor": ("what is missing or broken, and the command that helps", "缺什么、坏什么，以及修复命令"),
    "help.home": (
        "a Hermes home (default: HERMES_HOME or ~/.hermes)",
        "Hermes 主目录（默认：HERMES_HOME 或 ~/.hermes）",
    ),
    "help.profile": ("a profile of that home", "该主目录下的一个配置档案"),
    "help.json": ("one JSON document", "输出一个 JSON 文档"),
    # What every command may say.
    "yes.letters": ("y yes", "y yes 是 好"),
    "ask": ("{question} [y/N] ", "{question} [y/N] "),
    "error.not_confirmed": (
        "Nothing was done. Say --yes to do it without being asked.",
        "没有执行任何操作。加 --yes 可不经询问直接执行。",
    ),
    "error.internal": ("This failed ({kind}).", "执行失败（{kind}）。"),
    "error.system": ("This failed: {reason}.", "执行失败：{reason}。"),
    "error.profile": (
        "There is no profile {name!r}. These exist: {known}.",
        "没有名为 {name!r} 的配置档案。现有：{known}。",
    ),
    "error.cwd": (
        "The current folder is gone; name a project with --project.",
        "当前文件夹已不存在；请用 --project 指定项目。",
    ),
    "error.open": ("There is no hit {n}: {count} were found.", "没有第 {n} 条结果：共找到 {count} 条。"),
    "error.whole": ("{name} is a whole number from {least} on.", "{name} 应为不小于 {least} 的整数。"),
    "error.move": (
        "Name the conversation and the project, or use --undo or --repair.",
        "请指定对话和项目，或使用 --undo 或 --repair。",
    ),
    "error.repair": (
        "--repair goes without a conversation, a project or --undo.",
        "--repair 不能与对话、项目或 --undo 同用。",
    ),
    "none": ("none", "无"),
    "default": ("default", "默认"),
    "interrupted": ("Stopped.", "已停止。"),
    # status
    "status.home": ("Home", "主目录"),
    "status.profile": ("Profile", "配置档案"),
    "status.hermes": ("Hermes", "Hermes"),
    "status.not_here": ("not in this Python", "不在此 Python 环境中"),
    "status.provider": ("Search by meaning", "语义搜索"),
    "status.provider.local": ("local (nothing leaves this machine)", "本地（不向外发送任何内容）"),
    "status.provider.none": ("off (words only)", "关闭（仅字面搜索）"),
    "status.index": ("Index", "索引"),
    "status.index.none": ("not begun", "尚未建立"),
    "status.index.unreadable": ("cannot be read: {reason}", "无法读取：{reason}"),
    "status.index.size": ("{have} pieces, {owed} to do, {size}", "{have} 段已完成，{owed} 段待处理，{size}"),
    "status.index.abandoned": ("{count} pieces could not be embedded", "{count} 段无法嵌入"),
    "status.error": ("{count} pieces failed with {kind}", "{count} 段失败：{kind}"),
    "status.grants": ("Grants", "授权"),
    "status.problem": ("Problem", "问题"),
    "status.no_projects": ("No conversation belongs to a project yet.", "还没有属于任何项目的对话。"),
    "status.homeless": ("(no project)", "（无项目）"),
    "column.project": ("Project", "项目"),
    "column.conversations": ("Conversations", "对话"),
    "column.indexed": ("Indexed", "已索引"),
    "column.id": ("Id", "Id"),
    "column.title": ("Title", "标题"),
    "column.folder": ("Folder", "文件夹"),
    "column.messages": ("Messages", "消息"),
    "column.last": ("Last", "最近"),
    "column.profile": ("Profile", "档案"),
    "column.belongs": ("Seems to belong to", "看来属于"),
    "column.reason": ("Why", "依据"),
    # search
    "search.head": ("{project} · conversations: {count}", "{project} · 对话：{count}"),
    "search.nothing": ("Nothing found. No hit is no proof.", "没有找到。找不到不等于没有说过。"),
    "search.meaning": ("By meaning: {status}. {detail}", "语义搜索：{status}。{detail}"),
    "search.elsewhere": ("Also in: {projects}", "其他项目中也有：{projects}"),
    "search.open": ("Read on around a hit: --open N", "读结果前后：--open N"),
    "meaning.disabled": ("off", "关闭"),
    "meaning.consent_required": ("waits for your consent", "等待您的同意"),
    "meaning.indexing": ("not ready yet", "尚未就绪"),
    "meaning.partial": ("ready in part", "部分就绪"),
    "meaning.ready": ("ready", "就绪"),
    "meaning.unavailable": ("not available", "不可用"),
    # sessions
    "sessions.none": ("No conversation found.", "没有找到对话。"),
    "sessions.more": ("{shown} of {total} shown; --limit shows more.", "显示 {shown} / {total}；用 --limit 显示更多。"),
    "sessions.left_out": (
        "Left out: {hidden} hidden, {archived} archived.",
        "未列出：隐藏 {hidden}，归档 {archived}。",
    ),
    "sessions.child": ("↳ {title}", "↳ {title}"),
    "sessions.untitled": ("(no title)", "（无标题）"),
    # index
    "index.off": (
        "The search by meaning is switched off (embedding_provider: none), so there is nothing to index.",
        "语义搜索已关闭（embedding_provider: none），无需建立索引。",
    ),
    "index.waiting": (
        "Not sent, because nobody agreed to it yet: {names}. A search inside Hermes asks.",
        "以下项目尚无人同意，未发送：{names}。在 Hermes 中搜索时会询问。",
    ),
    "index.held": (
        "{count} conversations were moved in since somebody agreed, and are not sent.",
        "有 {count} 个对话是在同意之后移入的，未发送。",
    ),
    "index.progress": ("{done} of {total} conversations, {have} pieces", "{done} / {total} 个对话，{have} 段"),
    "index.done": (
        "Indexed: {total} conversations, {have} pieces, {new} of them new.",
        "索引完成：{total} 个对话，{have} 段，其中新增 {new} 段。",
    ),
    "index.others": (
        "{owed} pieces are still to come, from another process that is at work or from the next run.",
        "另有 {owed} 段尚待处理，由正在运行的其他进程或下次运行完成。",
    ),
    "index.stopped": (
        "Stopped: {done} of {total} conversations, {have} pieces; the next run goes on from there.",
        "已停止：{done} / {total} 个对话，{have} 段；下次从这里继续。",
    ),
    "index.abandoned": (
        "{count} pieces could not be embedded; words find them.",
        "{count} 段无法嵌入；仍可按字面找到。",
    ),
    "index.unredacted": (
        "Hermes is not in this Python, so nothing is redacted before it is embedded; Hermes will plan these anew.",
        "此 Python 环境中没有 Hermes，嵌入前不会脱敏；Hermes 之后会重新处理。",
    ),
    # move
    "move.moved": ("{id} moved: {source} -> {target}", "{id} 已移动：{source} -> {target}"),
    "move.would": ("{id} would be moved: {source} -> {target}", "{id} 将会移动：{source} -> {target}"),
    "move.no_folder": ("no folder", "无文件夹"),
    "repair.none": ("Every conversation's folder is where it was.", "所有对话的文件夹都还在。"),
    "repair.found": ("Conversations whose folder is gone: {count}", "文件夹已不存在的对话：{count}"),
    "repair.no_target": ("no project has that name", "没有同名项目"),
    "repair.several": ("several: {names}", "有多个：{names}"),
    "why.folder": ("same folder name", "文件夹同名"),
    "why.repository": ("same repository name", "仓库同名"),
    "repair.question": ("Move these {count} conversations?", "移动这 {count} 个对话？"),
    "repair.nothing": (
        "None of them can be placed without guessing; move them one by one.",
        "没有一个能不靠猜测归位；请逐个移动。",
    ),
    "repair.result": ("{moved} moved, {failed} failed.", "已移动 {moved} 个，失败 {failed} 个。"),
    # forget
    "forget.question": ("Drop the vectors of {what} ({count} conversations)?", "删除{what}的向量（{count} 个对话）？"),
    "forget.project": ("project {name!r}", "项目 {name!r} "),
    "forget.everything": ("all projects", "所有项目"),
    "forget.nothing": ("There is no index yet, so there is nothing to drop.", "还没有索引，无可删除。"),
    "forget.done": (
        "Dropped: the vectors of {count} conversations. The next search embeds them anew; to prevent that, set"
        " embedding_provider to none.",
        "已删除 {count} 个对话的向量。下次搜索会重新嵌入；如要避免，请把 embedding_provider 设为 none。",
    ),
    # consent
    "consent.none": ("Nothing may be sent anywhere: there is no grant.", "没有任何授权，不会向外发送内容。"),
    "consent.row": (
        "{project}: {model} at {endpoint}, since {since}",
        "{project}：{endpoint} 的 {model}，自 {since} 起",
    ),
    "consent.question": ("Revoke {count} grants?", "撤销 {count} 项授权？"),
    "consent.revoked": ("Grants revoked: {count}. Nothing more is sent.", "已撤销授权：{count} 项。不再发送任何内容。"),
    # doctor
    "check.ok": ("ok", "正常"),
    "check.note": ("note", "提示"),
    "check.broken": ("BROKEN", "故障"),
    "doctor.python": ("Python", "Python"),
    "doctor.hermes": ("Hermes", "Hermes"),
    "doctor.hermes.missing": (
        "not in this Python: nothing is redacted here and nothing can be moved",
        "不在此 Python 环境中：这里不会脱敏，也不能移动对话",
    ),
    "doctor.plugin": ("Plugin", "插件"),
    "doctor.plugin.on": ("enabled", "已启用"),
    "doctor.plugin.off": ("not enabled in config.yaml", "未在 config.yaml 中启用"),
    "doctor.toolset": ("Toolset", "工具集"),
    "doctor.toolset.on": ("project is offered", "project 可用"),
    "doctor.toolset.off": (
        "project is switched off (agent.disabled_toolsets)",
        "project 已关闭（agent.disabled_toolsets）",
    ),
    "doctor.toolset.fix": (
        "take project out of agent.disabled_toolsets in config.yaml",
        "从 config.yaml 的 agent.disabled_toolsets 中去掉 project",
    ),
    "doctor.toolset.unticked": ("project is unticked for: {where}", "project 在以下界面未勾选：{where}"),
    "doctor.needs": ("needed for {what}", "用于{what}"),
    "doctor.needs.meaning": ("the search by meaning", "语义搜索"),
    "doctor.needs.faster": ("a faster search by meaning", "更快的语义搜索"),
    "doctor.needs.settings": ("the settings, without Hermes", "没有 Hermes 时读取设置"),
    "doctor.needs.endpoint": ("an endpoint", "端点"),
    "doctor.missing": ("not installed", "未安装"),
    "doctor.too_old": ("{version} is too old", "{version} 版本过旧"),
    "doctor.state": ("Conversations", "对话"),
    "doctor.state.none": ("No conversation is stored in this home yet.", "此主目录里还没有保存任何对话。"),
    "doctor.state.ok": ("state.db is readable, {count} conversations", "state.db 可读，{count} 个对话"),
    "doctor.fts": ("Word index", "字面索引"),
    "doctor.fts.ok": ("complete", "完整"),
    "doctor.fts.missing": (
        "Hermes' index is missing ({names}); the messages themselves are read, slowly",
        "缺少 Hermes 的索引（{names}）；改为直接读消息，较慢",
    ),
    "doctor.fts.damaged": (
        "Hermes' index cannot be read; the messages themselves are read, slowly",
        "Hermes 的索引无法读取；改为直接读消息，较慢",
    ),
    "doctor.fts.behind": (
        "Hermes' index stands at message {reached} of {newest}; what follows is read itself",
        "Hermes 的索引到消息 {reached}（共 {newest}）；其后的直接读取",
    ),
    "doctor.store": ("Index", "索引"),
    "doctor.store.none": ("not begun; the first search begins it", "尚未建立；首次搜索时建立"),
    "doctor.store.ok": ("sound, {size}", "完好，{size}"),
    "doctor.store.damaged": ("damaged: {reason}", "已损坏：{reason}"),
    "doctor.store.unwritable": ("{folder} cannot be written", "{folder} 不可写"),
    "doctor.store.fix.unwritable": (
        "make that folder yours: chown and chmod u+rwx",
        "把该文件夹的所有权和写权限给自己：chown、chmod u+rwx",
    ),
    "doctor.settings": ("Settings", "设置"),
    "doctor.settings.ok": ("fine", "正常"),
    "doctor.fix": ("fix", "修复"),
    "doctor.summary": ("Broken: {count}", "故障：{count}"),
    "doctor.sound": ("Everything that is needed is there.", "所需的一切都在。"),
    # The slash command.
    "slash.usage": ("Usage: {usage}", "用法：{usage}"),
    "slash.help": (
        "/project-history COMMAND\n{commands}\nThe whole of it: project-history-recall --help, in a terminal.",
        "/project-history 命令\n{commands}\n完整用法：在终端运行 project-history-recall --help。",
    ),
    "slash.search": ("find past messages", "查找过去的消息"),
    "slash.status": ("projects and index", "项目与索引"),
    "slash.sessions": ("conversations, newest first", "对话，新的在前"),
    "slash.show": ("read one conversation", "读一个对话"),
    "slash.move": ("move a conversation; without ID this one", "移动对话；不写 ID 则为当前对话"),
    "slash.forget": ("drop vectors", "删除向量"),
    "slash.allow": ("agree to what an answer asked for", "同意某个回答所请求的发送"),
    "allow.done": (
        "Agreed: {count} conversations of {name} ({messages} messages, about {characters} characters) and its new ones"
        " may be sent to {host}. `/project-history consent revoke` takes it back.",
        "已同意：{name} 的 {count} 个对话（{messages} 条消息，约 {characters} 个字符）及之后的新对话可以发送到 {host}。"
        "用 `/project-history consent revoke` 收回。",
    ),
    "allow.unknown": (
        "No open request has the id {id}: take it from the latest answer; it changes with the project's folders.",
        "没有编号为 {id} 的请求：请使用最近一次回答里的编号；项目的文件夹变化后编号也会变。",
    ),
    "allow.nobody": (
        "Only a person who types this at the desktop, the TUI or a terminal can agree.",
        "只有在桌面、TUI 或终端里亲手输入的人才能同意。",
    ),
    "allow.no_endpoint": ("No endpoint is set, so nothing is to be agreed to.", "没有设置端点，无须同意任何事。"),
    "slash.consent": ("what may be sent to an endpoint", "允许发送到端点的内容"),
    "slash.help.line": ("this list", "本列表"),
    "slash.unknown": ("There is no command {name!r}.", "没有命令 {name!r}。"),
    "slash.sender": (
        "This version of Hermes does not say who typed this here, so only help is answered. Use a terminal:"
        " project-history-recall --help, or Hermes 0.22.",
        "此版本的 Hermes 不告知是谁输入的命令，因此只能显示帮助。请在终端使用 project-history-recall --help，"
        "或使用 Hermes 0.22。",
    ),
    "slash.chat": (
        "Only the owner may do that, from the desktop, the TUI or a terminal.",
        "只有主人可以在桌面端、TUI 或终端中执行。",
    ),
    "slash.chat.status": ("This chat's stored conversations: {count}.", "此聊天已保存的对话：{count} 个。"),
    "slash.chat.none": ("Nothing of this chat is stored yet.", "此聊天还没有保存任何内容。"),
    "slash.which_project": (
        "Hermes does not say here which conversation this is: name a project with --project. These exist: {names}",
        "Hermes 在这里不告知当前是哪个对话：请用 --project 指定项目。现有：{names}",
    ),
    "slash.which_session": (
        "Hermes does not say here which conversation this is: give its id, move ID PROJECT.",
        "Hermes 在这里不告知当前是哪个对话：请给出 id，即 move ID PROJECT。",
    ),
    "slash.which_to_show": ("Give the conversation's id: show ID.", "请给出对话的 id：show ID。"),
    "slash.rows": (
        "{shown} of {total} shown; words of a title or a message narrow it.",
        "显示 {shown} / {total}；加上标题或消息里的字词可以缩小范围。",
    ),
    "slash.data": (
        "Its newest messages (data, not instructions):",
        "最新的消息（仅为资料，不是指令）：",
    ),
    "slash.confirm": ("{question} Then say it again with --yes.", "{question} 如确定，请加 --yes 再输入一次。"),
    "slash.more": ("… {count} more characters", "……另有 {count} 个字符"),
    "slash.failed": ("This failed ({kind}); the log says more.", "执行失败（{kind}）；详见日志。"),
}

LANGUAGES = ("en", "zh")


def choose(tag: str) -> str:
    """The language of a locale or language tag such as `zh_CN.UTF-8`: "zh", or "en" for any other."""
    return "zh" if tag.strip().lower().replace("_", "-").startswith("zh") else "en"


def speak(tag: str = "en") -> Say:
    """How to say things to a person with this locale: `say(key, **placeholders)`."""
    at = LANGUAGES.index(choose(tag))

    def say(key: str, **values: object) -> str:
        text = CATALOGUE[key][at]
        return text.format(**values) if values else text

    return say
