-- Sliding log: latest time of a charge, void, sum of the costs, times of the oldest and the newest request, until when the requests are kept.
-- The requests are a sorted set of their own: token and cost, by time, with marks as in the second key of others. A lease is a request at
-- the time of its end. a: window.

-- costs sums the costs of requests, which are every step-th of the values.
local function costs(values, step)
	local sum = 0
	for i = 1, #values, step do
		local _, cost = unpack_('<c8d', values[i])
		sum = sum + math.abs(cost)
	end
	return sum
end

-- measure sets the cell to what the sorted set has: the newest and the oldest, and the sum if there is none.
local function measure(cell)
	local oldest = redis.call('ZRANGE', cell.aux, 0, 0, 'WITHSCORES')
	if #oldest == 0 then
		cell.sum = 0
		return
	end
	cell.oldest = tonumber(oldest[2])
	cell.newest = tonumber(redis.call('ZRANGE', cell.aux, -1, -1, 'WITHSCORES')[2])
end

local function load(key, aux, layer, state)
	local window, time = layer.a, now
	local cell = {key = key, aux = aux, back = 0, void = 0, records = '', window = window, sum = 0, newest = 0, oldest = 0, till = 0,
		lead = 0, dirty = false}
	if state then
		time, cell.void, cell.sum, cell.oldest, cell.newest, cell.till = unpack_('<dddddd', state)
		cell.records = string.sub(state, 49)
	else -- there may be requests whose state was evicted
		cell.sum = costs(redis.call('ZRANGE', aux, 0, -1), 1)
		if cell.sum > 0 then
			measure(cell)
			time = math.max(now, cell.newest)
		end
	end
	local ahead = time - now
	if ahead > window and cell.sum > 0 then -- far ahead: one request of all costs moves to now
		redis.call('DEL', aux)
		redis.call('ZADD', aux, now, pack('<c8d', 'moved   ', cell.sum))
		redis.call('PEXPIRE', aux, ceil(window / 1000) + 1)
		cell.newest, cell.oldest, cell.till, cell.dirty = now, now, now + window, true
	elseif ahead > 0 and cell.sum > 0 then
		cell.back = ahead
	end
	local begin = now + cell.back - window
	if cell.sum > 0 and cell.oldest <= begin then
		cell.sum = cell.sum - costs(redis.call('ZRANGEBYSCORE', aux, '-inf', begin), 1)
		redis.call('ZREMRANGEBYSCORE', aux, '-inf', begin)
		measure(cell)
		cell.dirty = true
	end
	return cell
end

local function used(cell)
	return cell.sum
end

-- fallsAfter is the shortest wait until so much has left the window.
local function fallsAfter(cell, excess)
	local at, step = 0, 128
	while true do
		local part = redis.call('ZRANGE', cell.aux, at, at + math.min(step, excess) - 1, 'WITHSCORES')
		if #part == 0 then
			return cell.newest + cell.window - now
		end
		for i = 1, #part, 2 do
			local _, cost = unpack_('<c8d', part[i])
			excess = excess - math.abs(cost)
			if excess <= 0 then
				return part[i + 1] + cell.window - now
			end
		end
		at = at + #part / 2
	end
end

local function decide(cell, layer, cost, before)
	local seen, max, wait = cell.sum + before, layer.max, 0
	local asked = math.max(cost, 1)
	local allowed = asked <= max and seen <= max - asked
	if not allowed then
		wait = asked + before > max and -1 or fallsAfter(cell, seen + asked - max)
	end
	return allowed, math.max(0, max - seen), wait
end

local function reset(cell)
	return cell.sum > 0 and cell.newest + cell.window - now or 0
end

local function charge(cell, layer, cost, other)
	local time = now + cell.back + cell.lead
	redis.call('ZADD', cell.aux, time, pack('<c8d', layer.token, other and -cost or cost))
	if other then
		redis.call('ZADD', cell.aux, time, pack('<c8d', layer.token, 0))
	end
	if cell.sum == 0 then
		cell.oldest, cell.newest = time, time
	end
	-- The requests of a lease are of later times than those that come before its end.
	cell.oldest, cell.newest = math.min(cell.oldest, time), math.max(cell.newest, time)
	cell.sum = cell.sum + cost
	if time + cell.window >= cell.till then -- seldom: it is kept for twice the window
		redis.call('PEXPIRE', cell.aux, ceil((2 * cell.window + cell.back) / 1000) + 1)
		cell.till = time + 2 * cell.window
	end
end

local function lease(cell, layer, lasts)
	cell.lead = lasts
end

local function refund(cell, layer, amount, time, cost)
	if redis.call('ZREM', cell.aux, pack('<c8d', layer.token, cost)) == 1 then
		redis.call('ZREM', cell.aux, pack('<c8d', layer.token, 0))
		if amount < math.abs(cost) then
			redis.call('ZADD', cell.aux, time, pack('<c8d', layer.token, math.abs(cost) - amount))
		end
		cell.sum = cell.sum - amount
		measure(cell)
	end
end

local function save(cell)
	return pack('<dddddd', now + cell.back, cell.void, cell.sum, cell.oldest, cell.newest, cell.till),
		cell.sum > 0 and cell.newest + cell.window - now - cell.back or 0
end

return load, decide, charge, reset, save, used, refund, lease
