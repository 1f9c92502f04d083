"""What was said, and the same asked in other words: no word and no Chinese bigram is in both."""

from __future__ import annotations

# What was said; a question in Chinese; one in English. Five texts are Chinese, then five English.
PAIRS = (
    (
        "数据库连接池被占满了，每次请求结束都没有归还连接，重启后半小时又会卡死。"
        "我在 finally 里补了释放逻辑。",
        "句柄泄漏导致服务隔一阵就挂，后来怎么修的",
        "the thing where handles leaked until everything hung, how did we fix it",
    ),
    (
        "短信验证码被人恶意刷量，我们按手机号和来源地址做了频率限制，还加了滑块验证。",
        "有人滥用发码功能，怎么防的",
        "protection against people abusing the one-time passcode endpoint",
    ),
    (
        "图片加载慢是因为没有压缩，转成新一代格式并且做懒加载之后，首屏时间从四秒降到一秒半。",
        "让页面更快打开的优化",
        "how did we cut initial page load time",
    ),
    (
        "密钥不小心提交到了公开仓库，立刻作废并且重写了历史记录，之后加了提交前扫描。",
        "敏感信息外泄后的补救措施",
        "what did we do after secrets were leaked publicly",
    ),
    (
        "退款流程里如果第三方超时，我们不能直接判失败，要先查询最终状态再决定。",
        "对方没有及时响应时该怎么处理退钱",
        "what to do when the payment provider doesn't answer in time while returning money",
    ),
    (
        "The mobile app drains the battery because it polls the server every two seconds; switching to push"
        " notifications fixed it.",
        "手机耗电太快的原因",
        "why did the phone lose charge so quickly",
    ),
    (
        "Passwords were hashed with MD5; I moved everything to argon2 and rehash upon the next successful"
        " login.",
        "用户口令的加密方式升级",
        "strengthening how credentials are stored",
    ),
    (
        "The crawler got banned because it ignored robots.txt and sent forty requests per second.",
        "爬虫被对方网站封了",
        "our scraping was blocked by the target site",
    ),
    (
        "Two people edited the same article and the later save overwrote the earlier one; we added a version"
        " check.",
        "并发修改导致内容丢失",
        "lost update problem when several authors work at once",
    ),
    (
        "Upload fails for files above ten megabytes because the reverse proxy limits the body size.",
        "传大附件报错",
        "large attachments are rejected",
    ),
)

# By the language of the question and that of the text: (which of the pairs, the question).
WAYS = {
    "zh to zh": [(n, PAIRS[n][1]) for n in range(5)],
    "en to zh": [(n, PAIRS[n][2]) for n in range(5)],
    "zh to en": [(n, PAIRS[n][1]) for n in range(5, 10)],
    "en to en": [(n, PAIRS[n][2]) for n in range(5, 10)],
}
