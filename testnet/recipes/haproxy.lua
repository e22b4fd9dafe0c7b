-- Asks edgelimit's /v1/auth about a request, and answers with its denial.
local auth = "http://127.0.0.1:8080/v1/auth"
local patience = 250 -- ms

-- first is the first value of a response's header; nil if it has none.
local function first(headers, name)
    local values = headers and headers[name]
    return values and values[0]
end

core.register_action("edgelimit", { "http-req" }, function(txn)
    -- HAProxy writes all that edgelimit believes itself.
    local asked, answer = pcall(function()
        return core.httpclient():get({
            url = auth,
            timeout = patience,
            headers = {
                ["x-forwarded-for"] = { txn.f:src() },
                ["x-forwarded-method"] = { txn.f:method() },
                ["x-forwarded-host"] = { txn.f:req_hdr("host") or "" },
                ["x-forwarded-uri"] = { txn.f:pathq() },
            },
        })
    end)
    if not asked or not answer then
        return -- without edgelimit requests pass
    end
    local limit, policy = first(answer.headers, "ratelimit"), first(answer.headers, "ratelimit-policy")
    if first(answer.headers, "x-rl-decision") ~= "deny" then
        if limit then txn:set_var("txn.rl_limit", limit) end
        if policy then txn:set_var("txn.rl_policy", policy) end
        return
    end
    local reply = txn:reply({ status = answer.status, reason = "Too Many Requests", body = answer.body })
    for _, name in ipairs({ "ratelimit", "ratelimit-policy", "retry-after", "cache-control", "content-type" }) do
        local value = first(answer.headers, name)
        if value then reply:add_header(name, value) end
    end
    txn:done(reply)
end)
