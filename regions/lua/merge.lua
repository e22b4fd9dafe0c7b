-- Raises counts by max and answers what was held before, in one step that no other client can come between.
--
-- KEYS: hashes, each once, of one cluster slot. Field: origin and birth. Value: a count in decimal, without leading zeros.
-- ARGV: for each key in turn: for how long it is needed (milliseconds), how many pairs follow, then the pairs: field, count.
-- Answer: for each key in turn a list: what was held before each pair ('0' is nothing), then the other fields with their counts.
--
-- Counts are compared as text: a Lua number is a double and exact up to 2^53 only.

local function larger(a, b)
	if #a ~= #b then
		return #a > #b
	end
	return a > b
end

-- Callers' clocks differ by little most of the time, which is no reason for a write (milliseconds).
local tolerated = 1000

-- unpack() takes some thousand values at most.
local most = 1000

local answers = {}
local arg = 1
for k, key in ipairs(KEYS) do
	local ttl, pairs_ = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
	arg = arg + 2

	local held = redis.call('HGETALL', key)
	local counts = {}
	for i = 1, #held, 2 do
		counts[held[i]] = held[i + 1]
	end

	local answer, given, raised = {}, {}, {}
	for i = 1, pairs_ do
		local field, count = ARGV[arg], ARGV[arg + 1]
		arg = arg + 2
		local before = counts[field] or '0'
		answer[i] = before
		given[field] = true
		if larger(count, before) then
			counts[field] = count
			raised[#raised + 1] = field
			raised[#raised + 1] = count
		end
	end

	for i = 1, #raised, most do
		redis.call('HSET', key, unpack(raised, i, math.min(i + most - 1, #raised)))
	end
	-- Whoever raises a count may rely on its being kept for as long as the caller needs it, whatever the clock of whoever made the hash
	-- says. A new hash has a PTTL of -1, so that there is none without a time to live.
	if #raised > 0 and redis.call('PTTL', key) + tolerated < ttl then
		redis.call('PEXPIRE', key, ttl)
	end

	for i = 1, #held, 2 do
		if not given[held[i]] then
			answer[#answer + 1] = held[i]
			answer[#answer + 1] = held[i + 1]
		end
	end
	answers[k] = answer
end

return answers
