-- Asks edgelimit's /v1/auth about a request, and answers with its denial. For haproxy.cfg it leaves
--
--   txn.rl_decision   allow, shadow-deny; unavailable (no decision, by what no client can cause), unreadable (no decision, and the
--                     client's request is the reason), wrong (any other answer)
--   txn.rl_status     the status of the answer
--   txn.rl_limit, txn.rl_policy   RateLimit and RateLimit-Policy for the client
local auth = "http://127.0.0.1:8086/v1/auth/deny/429"
local patience = 1000 -- ms; HAProxy's listener at that address answers before

-- What is of the connection or the body and not of the request, and what HAProxy writes itself.
local own = {
    ["connection"] = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["te"] = true, ["trailer"] = true, ["upgrade"] = true,
    ["transfer-encoding"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["forwarded"] = true,
    ["x-real-ip"] = true, ["x-rl-decision"] = true,
}

local function written(name)
    return own[name] or name:find("^x%-forwarded%-") or name:find("^x%-original%-")
end

-- max_fields is how many header fields a request may have. HAProxy 2.6 crashes where its client of HTTP sends a little under 100.
local max_fields = 80

-- asked_with are the headers of the question: all that the client sent, each as often as it did, and what HAProxy writes.
local function asked_with(txn)
    local headers, fields = {}, 0
    for name, values in pairs(txn.http:req_get_headers()) do
        if not written(name) then
            local list = {}
            for i = 0, #values do
                list[i + 1] = values[i]
            end
            fields = fields + #list
            headers[name] = list
        end
    end
    if fields > max_fields then error("more header fields than can be asked about") end
    headers["x-forwarded-for"] = { txn.f:src() }
    headers["x-forwarded-method"] = { txn.f:method() }
    headers["x-forwarded-host"] = { txn.f:req_hdr("host") or "" }
    local uri = txn.f:pathq() -- none of a target that begins with @ or *, which HAProxy hands on
    headers["x-forwarded-uri"] = { uri and uri ~= "" and uri or txn.f:url() }
    return headers
end

-- first is the first value of a response's header; nil if it has none.
local function first(headers, name)
    local values = headers and headers[name]
    return values and values[0]
end

-- unavailable are the statuses that no client can cause: of a wrong URL, and of the listener above where edgelimit does not answer.
local unavailable = { [404] = true, [502] = true, [503] = true, [504] = true }

core.register_action("edgelimit", { "http-req" }, function(txn)
    local sent, answer = pcall(function()
        return core.httpclient():get({ url = auth, timeout = patience, headers = asked_with(txn) })
    end)
    local status = sent and answer and answer.status or 0
    local decision = status ~= 0 and first(answer.headers, "x-rl-decision")
    txn:set_var("txn.rl_status", status)
    if decision == "deny" and status >= 400 then
        txn:set_var("txn.rl_decision", "deny")
        local reply = txn:reply({ status = answer.status, reason = "Too Many Requests", body = answer.body })
        for _, name in ipairs({ "ratelimit", "ratelimit-policy", "retry-after", "cache-control", "content-type" }) do
            local value = first(answer.headers, name)
            if value then reply:add_header(name, value) end
        end
        txn:done(reply)
    elseif status == 200 and (decision == "allow" or decision == "shadow-deny") then
        txn:set_var("txn.rl_decision", decision)
        local limit, policy = first(answer.headers, "ratelimit"), first(answer.headers, "ratelimit-policy")
        if limit then txn:set_var("txn.rl_limit", limit) end
        if policy then txn:set_var("txn.rl_policy", policy) end
        local delay = tonumber(first(answer.headers, "x-rl-delay-ms") or 0) -- a queue's, or a throttle's
        if delay > 0 then core.msleep(delay) end
    elseif unavailable[status] then
        txn:set_var("txn.rl_decision", "unavailable")
    elseif not sent or status >= 400 and status < 500 then
        txn:set_var("txn.rl_decision", "unreadable")
    else
        txn:set_var("txn.rl_decision", "wrong")
    end
end)
