"""The conversations of the demo: one developer, three projects, February to September.

Plain data, project by project. Some of it is forgotten, some reversed: the label queue
decided in March is gone in May, the stock rule of March is replaced in August, and the
search index of April turns out wrong in July. `home.py` writes it into a Hermes home.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `role` is "user", "assistant", or what happened between two of them:
    "ran" (a `command` and its output), "compacted" or "rotated" (the host summarised what
    stands above, in place or into a new session row)."""

    role: str
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation. `place` is the folder it ran in, below the workspace; "~" is the
    user's home, "" none at all. `start` is local time, to the minute."""

    place: str
    start: str
    title: str
    messages: tuple[Message, ...]
    source: str = "cli"
    branch_of: str = ""
    archived: bool = False

    def session_id(self, segment: int = 0) -> str:
        """The id of its row, shaped like Hermes's own; a rotated conversation has several."""
        start = datetime.fromisoformat(self.start) + timedelta(hours=segment)
        return f"{start:%Y%m%d_%H%M%S}_{crc32(self.title.encode()) & 0xFFFFFF:06x}"


@dataclass(frozen=True, slots=True)
class Project:
    """A project: its folders below the workspace. Without a name nobody made it: Hermes
    derives it from the git repository."""

    name: str
    folders: tuple[str, ...]

    def owns(self, conversation: Conversation) -> bool:
        return conversation.place.split("/")[0] in self.folders


DOCKSIDE = Project("Dockside", ("dockside", "dockside-deploy"))
MOSS_READER = Project("Moss Reader", ("moss-reader",))
SENSOR_BRIDGE = Project("", ("sensor-bridge",))

PROJECTS = (DOCKSIDE, MOSS_READER, SENSOR_BRIDGE)
REPOSITORIES = ("dockside", "moss-reader", "sensor-bridge")


def you(text: str) -> Message:
    return Message("user", text)


def agent(text: str) -> Message:
    return Message("assistant", text)


def ran(command: str, output: str) -> Message:
    return Message("ran", output, command)


def compacted(summary: str) -> Message:
    return Message("compacted", summary)


def rotated(summary: str) -> Message:
    return Message("rotated", summary)


CONVERSATIONS = (
    Conversation(
        "dockside/svc",
        "2026-02-11 09:38",
        "First look at the order service",
        (
            you(
                "ok so this is a fresh repo, I want a small order service: create order, take payment, "
                "print a shipping label. FastAPI and Postgres. where would you start?"
            ),
            agent(
                "I'd keep three packages under svc/: orders, ledger, shipping. One Postgres database, one "
                'FastAPI app in svc/app.py, and no shared "utils" until two of them need the same thing.\n\n'
                "One choice to make now: an ORM, or plain SQL?"
            ),
            you("plain SQL please. last job we spent weeks fighting lazy loads"),
            agent(
                "Then psycopg 3 with a small svc/db.py: a connection pool, `tx()` as a context manager, and "
                "rows as dataclasses through `class_row`. Migrations as numbered .sql files in migrations/, "
                "applied by a 40-line runner."
            ),
            you("good. and ids? I don't want customers to guess order counts"),
            agent(
                "ULIDs, made in Python, stored as text. They sort by time, so the newest orders stay "
                "together in the index, and nobody reads volumes off them."
            ),
            you("fine, decided: psycopg, plain SQL, ULIDs"),
            agent("Written down in docs/decisions.md as 0001 to 0003. First migration is migrations/0001_orders.sql."),
        ),
    ),
    Conversation(
        "dockside/svc/shipping",
        "2026-02-19 14:05",
        "Halyard sandbox answers 200 with an error body",
        (
            you(
                "labels from the Halyard sandbox come back with status 200 but there's no PDF in them, and "
                "raise_for_status() obviously says nothing. what is going on"
            ),
            ran(
                "python -m svc.shipping.try_label --order 01HQ",
                'HTTP 200\n{"ok": false, "code": "HLY-4271", "text": "destination not serviceable"}',
            ),
            agent(
                'Halyard puts failures into the body. `HLY-4271` is "destination not serviceable": the '
                "sandbox only knows postcodes that start with 9. So a 200 means nothing, only `ok` does."
            ),
            you("ugh. can we just treat every missing pdf as an error"),
            agent(
                'That would hide the difference between "retry later" and "never". I\'d map codes: '
                "HLY-4xxx is final and goes back to the clerk, HLY-5xxx may be retried. In "
                "HalyardClient.create_label:\n"
                "```python\n"
                'if not body["ok"]:\n'
                '    raise LabelRefused(body["code"]) if body["code"].startswith("HLY-4") else '
                'LabelDelayed(body["code"])\n'
                "```"
            ),
            you("yes do that. and test addresses?"),
            agent(
                "tests/fixtures/addresses.json now only has postcodes 90001 to 90010, with a comment why. "
                "Both errors have a test."
            ),
        ),
    ),
    Conversation(
        "dockside/svc/ledger",
        "2026-03-03 10:24",
        "账上记了两笔",
        (
            you("线上有个客户说扣了一次款，但账上记了两笔。查一下支付回调"),
            ran(
                "psql -c \"select order_id, count(*) from ledger where kind='payment' group by 1 having count(*) > 1\"",
                "37 rows",
            ),
            agent(
                "一共 37 单重复入账。都是渠道把同一个通知发了两次：第一次我们处理得慢，超过 5 秒没有返回，它"
                "就在 20 分钟后重发。on_notify() 里没有任何去重。"
            ),
            you("加个 redis 锁行不行，按订单号锁 10 秒"),
            agent(
                "我先按这个试了，不行：两次通知相隔 20 分钟，锁早就过期了，第二次照样入账。把锁的时间拉长也"
                "只是碰运气，而且 redis 重启锁就没了。"
            ),
            you("那怎么办"),
            agent(
                "让数据库来判断。新表 payment_events，唯一索引 (channel, event_id)：\n"
                "```sql\n"
                "INSERT INTO payment_events (channel, event_id, payload) VALUES (%s, %s, %s)\n"
                "ON CONFLICT DO NOTHING\n"
                "```\n"
                "插入成功才入账，插入和入账在同一个事务里。重复的通知直接返回 200，渠道就不再重发了。"
            ),
            you("同一个事务这点很关键，别忘了。那已经错的 37 单呢"),
            agent(
                "写了 scripts/fix_double_postings.py：不删原记录，对每一笔多记的入账写一条冲正，备注里带原始"
                "流水号。先用 --dry-run 跑过，金额合计 4,318.60 元，和财务给的差额一致。"
            ),
            you("跑吧"),
            agent(
                "跑完了，37 条冲正。对账报表重新生成，差额为 0。迁移是 migrations/0017_payment_events.sql，"
                "回归测试 test_same_notify_twice_posts_once。"
            ),
        ),
    ),
    Conversation(
        "dockside",
        "2026-03-10 16:12",
        "Queue for label printing: RabbitMQ",
        (
            you("label printing blocks the checkout request for 2-3 s. I want it in the background. which queue?"),
            agent(
                "Two honest options: a table in Postgres polled with SKIP LOCKED, or a broker. The table is "
                "one thing less to run; a broker gives you push delivery and dead-letter queues for free."
            ),
            you(
                "we'll have three warehouses by summer, each with its own printer. routing per warehouse "
                "sounds like a broker to me"
            ),
            agent(
                "Then RabbitMQ: one exchange `labels`, one queue per warehouse, dead letters into "
                "`labels.failed`. The consumer is svc/shipping/worker.py."
            ),
            you("ok RabbitMQ it is. decided"),
            agent(
                "Noted as decision 0009: label jobs go through RabbitMQ, one queue per warehouse. "
                "docker-compose.yml has the broker, and the checkout only publishes after the commit."
            ),
            you("publish after commit means we can lose a job if we crash in between, no?"),
            agent(
                "Yes, in a window of a few milliseconds. A nightly sweep looks for paid orders without a "
                "label and publishes them again; I put it in svc/shipping/sweep.py."
            ),
        ),
    ),
    Conversation(
        "dockside/svc/ledger",
        "2026-03-18 11:47",
        "退款多退了一百倍",
        (
            you("退款退多了 100 倍，客户倒是挺开心……"),
            agent("看到了，refund() 收到的是元，ledger 里记的是分，中间少了一次换算。这已经是第二次了，上次是运费。"),
            you("根治一下"),
            agent(
                "建议全程只用整数的分，只在两个边界换算：渠道接口和页面显示。加一个 Money 类型，内部是 int，"
                "禁止和裸数字相加：\n"
                "```python\n"
                "@dataclass(frozen=True)\n"
                "class Money:\n"
                "    fen: int\n"
                "```"
            ),
            you("Decimal 不行吗"),
            agent('可以，但 Decimal 挡不住"忘了乘 100"这种错，类型检查也看不出来。Money 可以，mypy 会直接报错。'),
            you("行，用 Money，存分"),
            agent(
                '改完了：svc/ledger/money.py，Money.from_yuan("12.30") 只在 svc/pay/channel.py 里用。受影响'
                "的 3 笔退款列在 issue 88 里，需要你和客户沟通。"
            ),
        ),
    ),
    Conversation(
        "dockside/svc/orders",
        "2026-03-26 20:31",
        "库存扣减超卖",
        (
            you("秒杀的时候超卖了 12 件，看看 reserve_stock"),
            agent("现在的逻辑是先 SELECT 数量，够了再 UPDATE。两个请求同时读到 1，就都扣成功了。"),
            you("用版本号做乐观锁？"),
            agent("试了，库存是不会错了，但 200 并发下 71% 的请求因为版本冲突重试超过 3 次失败，体验很差。不推荐。"),
            you("那直接一条 update"),
            agent(
                "对，条件写进 UPDATE 里：\n"
                "```sql\n"
                "UPDATE stock SET qty = qty - %(n)s WHERE sku = %(sku)s AND qty >= %(n)s\n"
                "```\n"
                "影响行数是 0 就说明没货。200 并发压测没有超卖，p95 是 38ms。"
            ),
            you("就这么定，下单时直接扣"),
            agent("记成决定 0012：下单即扣库存，单条 UPDATE，不做预占。取消订单时加回去。"),
        ),
    ),
    Conversation(
        "dockside",
        "2026-04-02 15:20",
        "Flaky test_settlement_cutoff",
        (
            you("test_settlement_cutoff fails on CI about once a week, always early in the morning. locally never"),
            agent(
                "It fails only between 00:00 and 08:00 Shanghai time. The test builds its orders with "
                "datetime.now() in UTC, and settle_batch(cutoff) cuts at midnight in Asia/Shanghai, so for "
                'eight hours a day "today" is two different days.'
            ),
            you("so the test is wrong or the code"),
            agent(
                "Both, a little. settle_batch() took a naive date. I changed it to `settle_batch(cutoff: "
                "datetime)` and it refuses naive values; the caller passes midnight in Asia/Shanghai as an "
                "aware datetime. The test freezes time at 23:59 and at 00:01."
            ),
            you("did you try just setting TZ in CI? that would be one line"),
            agent(
                "I did first. Green, and it would have hidden that production has the same hole: the "
                "scheduler runs in UTC. So no."
            ),
            you("good call"),
            agent(
                'Ran the test 300 times with the clock moved through the day: 300 passes. Commit "Settle by '
                'an aware cutoff".'
            ),
        ),
    ),
    Conversation(
        "dockside/svc/ledger",
        "2026-04-09 17:58",
        "对账差一分钱",
        (
            you("每天和渠道对账总差一两分，财务天天问"),
            agent("差在手续费的舍入。Python 的 round() 是银行家舍入，0.5 向偶数靠；渠道的文档附录 C 写的是四舍五入。"),
            you("全改成四舍五入？"),
            agent(
                '只改手续费这一处，用 Decimal.quantize(Decimal("1"), ROUND_HALF_UP)，单位是分。别的地方没有'
                "小数。用三月份的账单重算，31 天全部对平。"
            ),
            you("那汇总的时候是先舍入再加，还是先加再舍入"),
            agent("渠道是逐笔舍入再相加，我们跟它一样。fee_of(payment) 返回的已经是整数分，汇总只做加法。"),
            you("好的，关了"),
        ),
    ),
    Conversation(
        "dockside/svc/shipping",
        "2026-04-16 09:15",
        "Retry storm against Halyard",
        (
            you('Halyard just suspended our key for an hour, "too many requests". we sent 40k calls last night. how'),
            ran(
                'rg -n "retry" svc/shipping/halyard.py',
                "212:    for attempt in range(12):\n219:        time.sleep(0.2)",
            ),
            agent(
                "svc/shipping/halyard.py:212 retries twelve times, 0.2 s apart, on anything that isn't a "
                "label. Halyard was slow at 23:00, every worker went into that loop at once, and the 429 "
                "answers were retried as well. A retry storm of our own making."
            ),
            you("could we just raise the pool size so calls finish faster"),
            agent(
                "Tried it against the sandbox: more connections only made us reach the limit sooner, 429 "
                "after 9 s instead of 40 s. Dead end."
            ),
            you("ok then properly"),
            agent(
                "Done properly:\n"
                "- a token bucket in front of the client, 8 requests per second for all workers (their "
                "limit is 10)\n"
                "- exponential backoff with full jitter, at most 4 attempts\n"
                "- a 429 waits for as long as Retry-After says and counts as no attempt\n"
                "- 5xx and HLY-5xxx are retried, nothing else"
            ),
            you("where does the bucket live? we have 3 processes"),
            agent(
                "In Postgres: one row in rate_limits, taken with UPDATE … RETURNING. It costs about 1 ms a "
                "call, which nobody will notice next to 300 ms at Halyard. Load test: 2,000 labels in 4 min "
                "12 s, not a single 429."
            ),
            you("ship it, and mail Halyard that we're nice now"),
            agent(
                "Shipped in 1.8.3. Draft of the mail is in docs/halyard-apology.md, you may want to tone "
                "down the second paragraph."
            ),
        ),
    ),
    Conversation(
        "dockside/svc/shipping",
        "2026-04-17 10:02",
        "Retry storm: one queue per warehouse",
        (
            you(
                "let me try something else from here: what if each warehouse had its own bucket instead of one for all"
            ),
            agent(
                "Then three warehouses share 8 requests per second as 3 + 3 + 2. The quiet ones waste "
                "theirs while Gdansk waits; on last week's numbers Gdansk's labels would be 2.4 times "
                "slower at 17:00."
            ),
            you("so worse. drop it"),
            agent("Dropped. The branch experiment/bucket-per-warehouse stays unmerged, and the shared bucket stays."),
        ),
        branch_of="Retry storm against Halyard",
    ),
    Conversation(
        "dockside",
        "2026-04-22 22:44",
        "Migration 0042 locked the orders table",
        (
            you("deploy hung, checkout was down for 6 minutes!! migration 0042 was running"),
            agent(
                "0042 adds a foreign key from shipments to orders. Validating it takes a lock on both "
                "tables; it queued behind a report that had been running for minutes, and every checkout "
                "queued behind the migration."
            ),
            you("I killed it. how do we do this without an outage"),
            agent(
                "Three things, and I've rewritten 0042 that way:\n"
                "1. `SET lock_timeout = '2s'` at the top of every migration, so that it gives up (SQLSTATE "
                "55P03) instead of making everyone wait\n"
                "2. add the constraint NOT VALID, then VALIDATE CONSTRAINT in a second migration\n"
                "3. indexes only with CREATE INDEX CONCURRENTLY, outside a transaction"
            ),
            you("and when it hits 55P03?"),
            agent(
                "The runner waits 10 s and tries again, five times, then fails the deploy with the pid and "
                "the query of whoever holds the lock. You'll see it in the deploy log."
            ),
            you("make it a lint so nobody forgets"),
            agent(
                "scripts/lint_migrations.py fails CI on a file without lock_timeout, on CREATE INDEX "
                "without CONCURRENTLY and on a constraint that isn't NOT VALID."
            ),
        ),
    ),
    Conversation(
        "dockside-deploy",
        "2026-05-06 19:26",
        "先放 10% 的流量",
        (
            you("以后发版想先放 10% 的流量，怎么弄最省事"),
            agent(
                "nginx 的 split_clients 就够了，不用上服务网格。按订单号哈希，同一个客户始终落在同一个版本"
                "上：\n"
                "```nginx\n"
                'split_clients "$cookie_oid" $pool { 10% canary; * stable; }\n'
                "```"
            ),
            you("出问题怎么回滚"),
            agent(
                "bin/rollback：把比例改回 0%，reload nginx，整个过程 3 秒左右，不重启应用。数据库不回滚，所"
                "以迁移必须向前兼容两个版本。"
            ),
            you("自动回滚要不要做"),
            agent(
                "现在不建议。我们一天才几千单，10% 的样本太小，错误率抖一下就会误触发。先人工看面板，等单量到十倍再说。"
            ),
            you("同意，先人工"),
            agent('写在 dockside-deploy/README.md 里了："灰度 10% 看 30 分钟，人工决定，bin/rollback 回滚"。'),
        ),
    ),
    Conversation(
        "dockside",
        "2026-05-14 13:33",
        "Label jobs: back to Postgres",
        (
            you(
                "RabbitMQ went down again last night, disk alarm, and 90 labels didn't print until I "
                "noticed at breakfast. that's the second time in two months. I'm starting to hate it"
            ),
            agent(
                "Both outages were the same thing: the broker shares a disk with the logs and blocks "
                "publishers below 50 MB. We could give it its own volume and monitoring. Or ask whether we "
                "need it at all: it's 3,000 jobs a day, one every half minute."
            ),
            you("honestly what do we lose if label jobs live in a postgres table"),
            agent(
                "Push delivery: a worker would see a job after up to a second instead of at once. Dead "
                "letters become a column. What we gain: the job is inserted in the same transaction as the "
                "order, so the lost-job window and svc/shipping/sweep.py both disappear."
            ),
            you("do it. I know I said broker in March"),
            agent(
                "Decision 0009 is reversed by 0021: label jobs live in the table label_jobs, workers take "
                "them with\n"
                "```sql\n"
                "SELECT … FROM label_jobs WHERE warehouse = %s AND state = 'new'\n"
                "ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED\n"
                "```\n"
                "and LISTEN/NOTIFY wakes them, so printing starts in about 20 ms."
            ),
            you("and migration of what's in the queues right now"),
            agent(
                "Drained: worker ran until the three queues were empty, then the new code went live. "
                "RabbitMQ is out of docker-compose.yml, 412 lines deleted."
            ),
            you("best diff of the year"),
        ),
    ),
    Conversation(
        "dockside/svc/pay",
        "2026-05-20 10:50",
        "Webhook signatures and the wrong clock",
        (
            you("callbacks rejected with SIG_EXPIRED since this morning, about 1 in 20"),
            agent(
                "Only on node 2: its clock is 6 minutes ahead, chrony died on Sunday. We allow 5 minutes of "
                "skew, so every callback that arrives there looks expired."
            ),
            you("先把时钟修好。另外要不要把 5 分钟放宽到 15 分钟"),
            agent(
                "时钟修好了，chronyc tracking 显示偏差 0.3 ms。不建议放宽：窗口越大，被截获的通知能重放的时"
                "间越长。虽然 payment_events 会去重，但退款通知走的是另一条路。"
            ),
            you("ok keep 5. alert when the clock is off then"),
            agent(
                "Added: the health check compares with the database's now() and fails above 2 s. "
                "verify_signature() also logs the skew it saw, so next time it's one grep."
            ),
        ),
    ),
    Conversation(
        "dockside/svc/orders",
        "2026-06-03 09:05",
        "拆分订单服务",
        (
            you("订单模块越来越大了，想拆成 orders 和 fulfilment 两块，帮我看看怎么拆合适"),
            agent(
                "先看了依赖：svc/orders 里 62 个函数，有 23 个只和发货有关，它们读写的表是 shipments、"
                "parcels、label_jobs。两块之间真正的接口只有一个：订单付款之后通知发货。"
            ),
            you("拆成两个库吗"),
            agent(
                "我建议先不拆库，只拆 schema。拆库的话，付款和创建发货单就不在一个事务里了，要上 outbox，出"
                "了问题还得对账；我们现在两个人维护，不值。拆 schema 之后权限和依赖一样能管住。"
            ),
            you("那就 fulfil 这个 schema，不拆库。以后要拆库的条件是什么"),
            agent(
                "写三条：一，fulfilment 有独立的团队；二，两边的备份窗口不一样；三，单库写入超过 2,000 TPS。"
                "现在一条都不满足。"
            ),
            you("ok 记下来，开始搬表"),
            agent(
                "migrations/0051_fulfil_schema.sql：ALTER TABLE … SET SCHEMA fulfil，只改目录信息，不搬数"
                "据，整个迁移 40ms。旧名字留了视图，两个版本都能跑。"
            ),
            compacted("拆分订单服务：只拆 schema（fulfil.*），不拆库；表已搬完，旧名字保留视图。接下来拆代码。"),
            you("继续，代码怎么搬"),
            agent(
                "按依赖顺序：先 parcels，再 label_jobs，最后 shipments。import-linter 加一条规则："
                "svc.fulfil 不能 import svc.orders.internal。"
            ),
            you("视图什么时候删"),
            agent("等 1.12 全量之后再过一个版本，也就是 1.13 的迁移里删。我在 issue 131 里挂了提醒。"),
        ),
    ),
    Conversation(
        "dockside/svc/ledger",
        "2026-06-12 14:40",
        "Refund flow rewrite",
        (
            you(
                "refunds are spread over four functions and nobody knows which states exist. let's write "
                "the state machine down first"
            ),
            agent(
                "From the code I find seven states, two of them unreachable. What's left: requested, "
                "approved, sent, settled, failed. I'd make RefundState an enum and one function, "
                "`advance(refund, event)`, the only place that changes it."
            ),
            you("what about partial refunds"),
            agent(
                "A refund has an amount; an order has many refunds. The rule that matters: sum of refunds "
                "that are not failed never exceeds the payment. As a CHECK it needs a trigger, so I'd lock "
                "the payment row and check in advance()."
            ),
            you("yes. and a failed one can be sent again?"),
            agent(
                "As a new refund with retry_of set, never by moving failed back to sent: the channel has "
                "seen that number and answers DUP_REFUND_NO."
            ),
            rotated(
                "Refund rewrite: RefundState (requested, approved, sent, settled, failed), advance() is the "
                "only writer, failed refunds are retried as a new row with retry_of."
            ),
            you("接着做。渠道那边退款结果是异步的，多久算超时"),
            agent(
                "文档说最长 24 小时，实测最慢 6 小时。sent 超过 24 小时还没有结果就去主动查询 query_refund，"
                "查不到才算 failed，不能直接超时失败，不然可能退两次。"
            ),
            you('这个"不能直接超时失败"写成测试'),
            agent(
                "写了，test_silence_is_not_failure。状态图在 docs/refunds.md，旧的四个函数全部删除，一共少了 260 行。"
            ),
        ),
    ),
    Conversation(
        "dockside/web",
        "2026-06-24 11:11",
        "Old admin panel: login loop",
        (
            you("login on the admin panel just bounces back to the login page, only in Safari"),
            agent(
                "The session cookie is set with SameSite=None but without Secure, because the panel runs "
                "behind the office proxy on plain http. Safari drops such a cookie, so every request looks "
                "logged out."
            ),
            you("we're killing this panel in the autumn. cheapest fix?"),
            agent(
                "SameSite=Lax: the panel never needs the cookie cross-site. One line in "
                "web/admin/session.py. Verified in Safari 18 and Chrome."
            ),
            you("great, done with it"),
        ),
        archived=True,
    ),
    Conversation(
        "dockside",
        "2026-07-08 08:52",
        "Export worker gets killed",
        (
            you("the nightly export died with exit code 137 three nights in a row"),
            agent(
                "137 is the kernel's OOM killer. export_orders() does fetchall() on 1.9 million rows and "
                "builds one CSV string out of them; peak 3.4 GB in a container of 2 GB."
            ),
            you("give it 4?"),
            agent(
                "It would last until about October. Better: a server-side cursor and streaming.\n"
                "```python\n"
                'with conn.cursor("export") as cur:\n'
                "    cur.itersize = 2000\n"
                "    for row in cur: writer.writerow(row)\n"
                "```\n"
                "Peak is 96 MB now and it takes 3 min 50 s instead of 3 min 10 s."
            ),
            you("slower but alive, I'll take it"),
            agent(
                "Also writes to a temporary file and renames it at the end, so that finance never downloads "
                "half an export again."
            ),
        ),
    ),
    Conversation(
        "dockside/svc/shipping",
        "2026-07-22 16:09",
        "中文地址拆省市区",
        (
            you("国内地址要拆成省、市、区给打单系统，现在用正则，隔三差五就拆错"),
            agent(
                '看了最近 200 条拆错的：四成是直辖市（"上海市浦东新区"没有省），三成是省略了"省"字（"广东深'
                '圳"），剩下是新设的区。正则补不完的。'
            ),
            you("有现成的库吗"),
            agent(
                "试了两个：一个区划数据停在 2019 年，一个加载要 4 秒。最后用统计局的区划代码自己做了前缀树，"
                "3,300 个节点，加载 30ms，200 条里对了 197 条。"
            ),
            you("错的 3 条呢"),
            agent("都是客户自己写错了区，这种不猜，split_region() 返回 None，让客服确认。"),
            you("可以"),
        ),
    ),
    Conversation(
        "dockside/svc/orders",
        "2026-08-13 10:37",
        "库存改成预占",
        (
            you("下单直接扣库存有个问题，很多人下单不付款，库存被占着卖不出去，运营意见很大"),
            agent("上周的数据：下单未付款占 34%，平均 26 分钟后才自动取消，热门款有一半时间显示缺货。"),
            you("三月份定的是不做预占，现在看得改"),
            agent(
                "同意，决定 0012 由 0030 替代：下单只写 stock_holds（sku、数量、过期时间 10 分钟），付款时再"
                "真正扣 stock。可售数 = qty - 未过期的 holds 之和。"
            ),
            you("并发会不会又超卖"),
            agent(
                "写 holds 之前先锁 stock 那一行，`SELECT qty … FOR UPDATE`，再检查可售数。200 并发压测没有超"
                "卖，p95 从 38ms 变成 52ms，能接受。"
            ),
            you("过期的怎么清"),
            agent("不靠清理保证正确，查询时只算 expires_at > now() 的。每小时删一次旧行，只是为了表不变大。"),
            you("好，上线"),
        ),
    ),
    Conversation(
        "dockside/web",
        "2026-09-02 15:48",
        "Order list takes nine seconds",
        (
            you("the order list for the big customer takes 9 s. EXPLAIN attached, I can't read it"),
            ran(
                "psql -f slow.sql",
                "Seq Scan on orders  (actual time=0.03..8721.44 rows=412 loops=1)\n"
                "  Filter: (lower(customer_ref) = 'mv-1180'::text)\n"
                "  Rows Removed by Filter: 1893310",
            ),
            agent(
                "The filter is on lower(customer_ref) and the index is on customer_ref, so Postgres reads "
                "all 1.9 million rows. An index on the expression is enough: `CREATE INDEX CONCURRENTLY "
                "orders_ref_lower ON orders (lower(customer_ref), id DESC)`."
            ),
            you("won't citext be cleaner?"),
            agent(
                "Cleaner, but changing the type rewrites the table, and we promised no long locks after "
                "April. The expression index took 14 s to build and blocked nobody. The page is at 45 ms "
                "now."
            ),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-02-15 21:03",
        "How to paginate a chapter",
        (
            you("building an epub reader with tauri. each chapter is html. how do I turn that into pages?"),
            agent(
                "Either CSS multi-column (the browser breaks the lines, you scroll sideways by one page "
                "width) or measure every element and cut the DOM yourself."
            ),
            you("which one do real readers use"),
            agent(
                "Both exist. Columns give you text selection, search and accessibility for nothing; "
                "measuring gives you control over widows and page-exact footnotes, and a lot of code."
            ),
            you("columns then, keep it small"),
            agent(
                "Decided: CSS columns. src/reader/paginate.ts sets column-width to the page width and "
                "column-gap to the margin; page n is scrollLeft = n * (width + gap). 60 lines with the "
                "resize observer."
            ),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-03-07 22:17",
        "竖排书分页错位",
        (
            you("日文和繁体的竖排书，翻到第十几页开始就歪了，越往后歪得越多"),
            agent(
                "竖排时分栏方向变成上下，翻页应该改 scrollTop，方向还是从右往左。现在 paginate.ts 只算了 "
                "scrollLeft，而且每页有 0.4px 的舍入误差，翻得越多积得越多。"
            ),
            you("那就四舍五入"),
            agent(
                "只对结果取整没用，误差是分栏宽度本身不是整数造成的。我把页宽先向下取整到设备像素，再设 "
                "column-width，误差就没有了：\n"
                "```ts\n"
                "const page = Math.floor(box.width * devicePixelRatio) / devicePixelRatio\n"
                "```"
            ),
            you("竖排的翻页方向呢"),
            agent(
                "writing-mode: vertical-rl 时用 scrollTop，下一页是往下滚，但手势和方向键按从右往左映射。测"
                "了 4 本竖排书，翻到最后一页都对齐。"
            ),
            you("漂亮"),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-03-21 17:30",
        "Highlights drift after a re-import",
        (
            you("when I re-import a book with corrected typos, my highlights are on the wrong words"),
            agent(
                "Highlights are stored as an EPUB CFI, a path through the DOM with a character offset. The "
                "corrected file has one more <span> in chapter 3, and every path after it points somewhere "
                "else."
            ),
            you("can we repair the CFIs"),
            agent(
                "I tried: matching the old and new DOM and shifting the paths. Works for added text, breaks "
                "as soon as the publisher splits a paragraph. 61 of 240 highlights were still wrong."
            ),
            you("what else is there"),
            agent(
                "Anchor by the text itself: the quote with 32 characters before and after "
                "(TextQuoteAnchor). On opening we look for the quote, and when there are several, take the "
                "one whose surroundings fit best. Same test: 238 of 240 right, the other two were deleted "
                "sentences."
            ),
            you("go. keep cfi as a hint?"),
            agent(
                "Yes: CFI first, accepted only if the text there equals the quote; otherwise the search. "
                "Old highlights are converted when their book is next opened. src/notes/anchor.ts."
            ),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-04-05 20:08",
        "全文搜索用哪个库",
        (
            you("想给书架加全文搜索，中文英文都要，tantivy 还是 sqlite fts5？"),
            agent(
                "tantivy 更快，但中文要外挂分词词典（约 5 MB），索引是一个目录，备份和同步都麻烦。FTS5 就在"
                "现有的 library.db 里，trigram 分词器不用词典。"
            ),
            you("书不多，两三百本"),
            agent("那就 FTS5 + trigram。300 本书的索引约 410 MB，查询 20ms 左右。"),
            you("行，定了，trigram"),
            agent("建好了：book_fts，tokenize='trigram'，src-tauri/src/search.rs。注意 trigram 至少要三个字才能查。"),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-04-19 23:40",
        "White flash when starting in dark mode",
        (
            you("in dark mode the window flashes white for half a second at startup, it hurts at night"),
            agent(
                "The window appears before the web view has painted, and its default background is white. "
                'Two changes: "visible": false in tauri.conf.json, and show() once the first frame is '
                "drawn; and set backgroundColor for the time in between."
            ),
            you("still flashes on windows"),
            agent(
                "WebView2 paints its own white first. `WebviewWindowBuilder::background_color` fixes that, "
                "it has to be set before build(), not after. Now dark from the first frame on Windows 11 "
                "and macOS."
            ),
            you("终于不瞎了"),
            agent('顺便把"跟随系统"也做了：启动前读系统主题，颜色从那里来。'),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-05-03 14:26",
        "Sync between two laptops loses highlights",
        (
            you("I read on two machines, sync through a shared folder. yesterday 15 highlights vanished"),
            agent(
                "Both machines write the whole notes.json, the later save wins. You annotated offline on "
                "the train, then the desktop saved its older copy over it."
            ),
            you("add a modified-since check?"),
            agent(
                "That turns silent loss into a conflict dialog. Better if there's nothing to conflict: each "
                "machine appends to its own log file, one line per add, edit or delete, with a Lamport "
                "clock, and every reader merges all logs."
            ),
            you("that sounds like a database project"),
            agent(
                "It's about 150 lines: src/sync/oplog.ts. Merge is a sort by (clock, machine) and a fold. "
                "Logs are compacted when every machine has seen them. I ran 10,000 random interleavings of "
                "two machines: both always end up with the same notes."
            ),
            you("ok op log. and my 15 highlights?"),
            agent(
                "Recovered 14 from the folder's version history with scripts/rescue_notes.py. The 15th was "
                "made and overwritten within the same minute."
            ),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-05-17 19:52",
        "安装包里的字体太大",
        (
            you("安装包 31 MB，里面字体就占了 18 MB，能不能小一点"),
            agent(
                "思源宋体全字库 6.5 万字形。转 woff2 只能到 14 MB，不够。按通用规范汉字表一、二级字加常用标"
                "点做子集，6,763 个字形，woff2 之后 3.9 MB。"
            ),
            you("生僻字怎么办"),
            agent(
                "CSS 里用 unicode-range 分两份：常用子集随包，剩下的放在系统字体回退。古籍里的生僻字会变成系"
                "统宋体，字形略有差别，能读。"
            ),
            you("可以接受"),
            agent("脚本 scripts/subset_fonts.sh，用 pyftsubset，--layout-features='*' 一定要加，不然竖排标点会丢。"),
        ),
    ),
    Conversation(
        "moss-reader/src-tauri",
        "2026-05-30 16:44",
        "Import fails: ERR_ZIP_ENTRY_TOO_LARGE",
        (
            you("can't import the annotated bible, error ERR_ZIP_ENTRY_TOO_LARGE"),
            agent(
                "One entry unpacks to 212 MB: a single xhtml with all the notes in it. EpubArchive::open "
                "reads entries into memory with a ceiling of 64 MB, which is our own check against zip "
                "bombs."
            ),
            you("raise it to 256?"),
            agent(
                "Then a bomb may take 256 MB. I'd rather stream: split the chapter at <section> while "
                "unpacking and check the ratio (more than 200:1 is refused) instead of the size."
            ),
            you("fine, stream"),
            agent(
                "Done in src-tauri/src/epub/archive.rs. The book imports in 6 s at 40 MB peak; the bomb in "
                "the tests is refused after 1.1 MB."
            ),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-06-16 22:05",
        "朗读断句太碎",
        (
            you('朗读的时候"3.5 公里"会在小数点那里停一下，引号里的句号也断开，听着很碎'),
            agent(
                "现在按 [。！？.!?] 直接切。改成 Intl.Segmenter 的 sentence 粒度，小数和缩写它都认识；引号我"
                "在后面加了一步合并：右引号跟着前一句。"
            ),
            you("安卓上有 Intl.Segmenter 吗"),
            agent("系统 WebView 87 以后就有。更旧的退回原来的切法，但先保护数字里的点。"),
            you("长句呢，有的句子两百字"),
            agent("超过 120 字的句子在逗号、分号处再分，停顿比句号短一半。听了三章，自然多了。"),
        ),
    ),
    Conversation(
        "moss-reader/src-tauri",
        "2026-07-04 18:18",
        "两个字的词搜不到",
        (
            you('搜"孤独"什么都没有，搜"百年孤独"就有，怎么回事'),
            agent(
                "trigram 最少三个字，两个字的词在索引里根本没有对应的项。四月选它的时候我提过这一点，低估"
                "了：日志里 68% 的中文搜索是两个字。"
            ),
            you("so we need something else. tantivy after all?"),
            agent(
                "Not yet. Keep FTS5 but index Chinese as overlapping bigrams: we insert spaces ourselves (孤"
                '独 → "孤独", 百年孤独 → "百年 年孤 孤独") and use the unicode61 tokenizer. Latin words '
                "stay words."
            ),
            you("index size?"),
            agent(
                "292 MB instead of 410, two-character words in 8 ms. The price: a single character can only "
                "be found by a slow scan, so we ask for two."
            ),
            you("ok decided, bigrams, trigram goes"),
            agent("换好了：src-tauri/src/search.rs 里的 bigrams()，老索引在第一次启动时重建，300 本约 50 秒，在后台。"),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-08-01 12:12",
        "macOS release: errSecInternalComponent",
        (
            you("codesign in the release job fails with errSecInternalComponent, works on my mac"),
            agent(
                "The keychain on the runner is locked when codesign asks for the key, and there is nobody "
                "to click. `security unlock-keychain` plus `set-key-partition-list -S apple-tool:,apple:` "
                "for that keychain."
            ),
            you("still the same error"),
            agent(
                "The partition list was set on the login keychain, the certificate is in build.keychain. "
                "With the right keychain it signs; notarization took 3 minutes. Release 0.6.0 is out."
            ),
            you("write it down, I will hit this again next year"),
            agent('docs/release.md, section "errSecInternalComponent", with the two commands in order.'),
        ),
    ),
    Conversation(
        "moss-reader",
        "2026-09-06 21:33",
        "阅读进度跳回第一页",
        (
            you("有时候打开书会跳回第一页，进度就丢了"),
            agent("复现了：窗口最小化的时候宽度是 0，resize 触发重新分页，页码算成 0，然后立刻存盘。"),
            you("加个判断宽度大于 0？"),
            agent(
                "加了，但还不够：切换字体的时候也会先算出一个错的总页数。进度不该存页码，应该存文字位置。现"
                "在存章节加字符偏移，页码打开时再算；保存也推迟 800ms，等排版稳定。"
            ),
            you("老的进度能迁移吗"),
            agent("能，按旧页码打开一次就换算过去了。测试 progress_survives_zero_width。"),
        ),
    ),
    Conversation(
        "sensor-bridge",
        "2026-03-01 10:20",
        "Modbus frames with bad CRC",
        (
            you(
                "reading the flow meter over RS485, about 5% of the frames come back as E_CRC. short cable, new adapter"
            ),
            agent(
                "5% with a short cable isn't noise. crates/modbus/src/rtu.rs ends a frame after 1.75 ms of "
                "silence, and the USB adapter delivers bytes in packets of up to 16 ms. We cut frames in "
                "two and then complain about their checksum."
            ),
            you("raise the silence to 20 ms?"),
            agent(
                "It works, and costs 20 ms per request: 50 registers would take a second. The length is "
                "known from the function code and the byte count, so I read exactly that many bytes and "
                "keep 100 ms only as a timeout."
            ),
            you("numbers?"),
            agent(
                "0 errors in 40,000 frames, 6 ms each. The latency timer of the adapter could go to 1 ms as "
                "well, but that needs root."
            ),
        ),
    ),
    Conversation(
        "sensor-bridge/crates/uplink",
        "2026-03-29 21:14",
        "MQTT 断线重连之后丢消息",
        (
            you("网关断网十分钟再连上，中间的数据全没了，不是 QoS 1 吗"),
            agent(
                "QoS 1 只保证在线的时候重发。rumqttc 的队列在内存里，只有 100 条，满了就丢最旧的；进程一重启就全没了。"
            ),
            you("把队列调大"),
            agent(
                "10 分钟是 6,000 条，一天是 86 万条，内存放不下，掉电也会丢。应该落盘：先写本地 spool 文件，"
                "收到 PUBACK 再删。"
            ),
            you("顺序要保证吗"),
            agent(
                "要，时序库按到达顺序算增量。所以补发期间新数据也先进 spool，从头往外发，不走快车道。"
                "crates/spool，追加写，每条带 CRC32，掉电后截掉最后半条。"
            ),
            you("每条都 fsync 吗，SD 卡受不了"),
            agent(
                "每秒 fsync 一次，最多丢一秒。clean_session 也改成 false 了。拔网线 2 小时再插上，7,200 条一条不少。"
            ),
        ),
    ),
    Conversation(
        "sensor-bridge",
        "2026-05-11 08:37",
        "Watchdog reset every 41 minutes",
        (
            you("the board reboots every 41 minutes, like clockwork. dmesg says watchdog"),
            agent(
                "41 minutes is close to 2^31 µs plus a bit... no, that's 35.8. Let me look at what runs "
                "before each reset."
            ),
            ran(
                "journalctl -b -1 | tail -3",
                "i2c i2c-1: sendbytes: NAK bailout\nbridge: humidity read took 4.98 s\nwatchdog: did not stop!",
            ),
            agent(
                "The humidity sensor hangs the I2C bus, the read blocks for 5 s, and wdt_feed() sits in the "
                "same loop with a 5 s watchdog. The sensor's heater cycle is 41 minutes, that's your clock."
            ),
            you("feed it from another thread then?"),
            agent(
                "Then the watchdog no longer watches the loop. I moved the I2C reads to a thread of their "
                "own with a 500 ms deadline; the main loop still feeds, and only when every reader has "
                "reported in the last 10 s, or has been marked as broken."
            ),
            you("3 days without a reset. closing"),
            agent(
                "Closing. The sensor itself needs a bus reset (nine clock pulses) after a hang; that's in "
                "crates/i2c/src/recover.rs."
            ),
        ),
    ),
    Conversation(
        "sensor-bridge",
        "2026-06-28 15:09",
        "温度跳到 -127",
        (
            you("冷库的温度曲线偶尔掉到 -127，然后马上恢复，报警响了一夜"),
            agent(
                "-127 不是温度，是 DS18B20 驱动读不到设备时的返回值。三线里的电源线太长，寄生供电撑不住转换的 750ms。"
            ),
            you("软件里过滤掉就行了吧"),
            agent(
                '过滤要做，但不能当没发生：现在返回 Reading::Missing，曲线断开，连续 5 次才报"传感器离线"。'
                "另外 85.0 是上电默认值，开机后第一次读到也丢掉。"
            ),
            you("硬件呢"),
            agent("改成三线外部供电，上拉电阻从 4.7k 换成 2.2k。换过的两路一周没有再出现。"),
        ),
    ),
    Conversation(
        "sensor-bridge",
        "2026-08-20 11:25",
        "Cross build for armv7: undefined reference to __atomic_load_8",
        (
            you("交叉编译 armv7 报 undefined reference to `__atomic_load_8'，x86 上没问题"),
            agent(
                "ARMv6 的目标没有 64 位原子指令，链接器要 libatomic。但我们的板子是 v7，目标写错了："
                ".cargo/config.toml 里是 arm-unknown-linux-gnueabihf，应该用 armv7-unknown-linux-musleabihf"
                "。"
            ),
            you("can we not just link libatomic"),
            agent(
                "We can: `-C link-arg=-latomic` builds, and then every 64-bit counter goes through a lock. "
                "With the right target it is one ldrexd. Also musl, so that the binary runs on the old "
                "image without the newer glibc."
            ),
            you("right target then"),
            agent("Done, and CI builds it with cross 0.2.5. The binary is 6.1 MB, static."),
        ),
    ),
    Conversation(
        "sensor-bridge/crates/spool",
        "2026-09-17 19:40",
        "spool 文件越来越大",
        (
            you("/var/spool/bridge 已经 9 个 G 了，SD 卡快满了，不是发完就删吗"),
            agent(
                "一条消息一直没有 PUBACK：payload 有 300 KB，broker 上限是 256 KB，它直接断开连接。我们按顺"
                "序重发，于是永远卡在这一条，后面的只进不出。"
            ),
            you("跳过它？那不就丢了"),
            agent(
                "移到 spool/rejected/，记下原因，最多留 100 条，然后继续往后发。同时 spool::compact() 以前只"
                "在启动时跑，现在每发完 64 MB 的一段就删一段。"
            ),
            you("9 G 现在能发出去吗"),
            agent("限速 200 条每秒补发，大约 11 小时，不影响实时数据的延迟指标。已经在跑了。"),
            you("跑完告诉我"),
            agent("跑完了，用了 10 小时 40 分，rejected 里一共 3 条，都是同一个摄像头的快照。"),
        ),
    ),
    Conversation(
        "~",
        "2026-04-11 13:20",
        "Regex for ISO dates",
        (
            you("quick one: regex for yyyy-mm-dd that doesn't accept month 13"),
            agent(
                "`^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])$`. It still accepts 2026-02-31; for that, parse it."
            ),
            you("good enough, thanks"),
            agent("You're welcome."),
        ),
    ),
    Conversation(
        "",
        "2026-05-28 09:02",
        "请假邮件",
        (
            you("帮我写封请假邮件，下周三到周五，家里老人要做个小手术，语气别太沉重"),
            agent(
                "主题：6 月 3 日至 5 日请假\n\n"
                "您好，家里老人下周有一个小手术，我想请 6 月 3 日至 5 日三天假去陪护。手上的发布已经提前到周"
                "二，值班和老周换好了。有急事可以打我电话。"
            ),
            you("很好"),
            agent("祝手术顺利。"),
        ),
        source="telegram",
    ),
    Conversation(
        "~",
        "2026-07-30 20:45",
        "Which mechanical keyboard",
        (
            you("I type all day, flatmates sleep next door. which switches?"),
            agent(
                "Silent tactiles: you still feel the bump, and the damped stem takes away most of the "
                "clack. A hot-swap board lets you change your mind later."
            ),
            you("linear or tactile if I write more prose than code"),
            agent(
                "For long prose many people find light linears less tiring. Try a tester with both for an "
                "evening before you buy a board."
            ),
        ),
    ),
)
