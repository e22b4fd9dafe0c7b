-- Decides on all layers of a request in one step that no other client can come between.
--
-- KEYS: for each layer two: its state, and the requests of a log or, for other algorithms, the tokens that found no room in the state.
-- ARGV[1]: one letter, then the request's token of 8 bytes. n: take; o: report; r, p: the same, which may have been executed
--   before, or may be later; l: lease; x: refund.
-- ARGV[2...]: for each layer: algorithm, mode, flags (1: charge each, 2: overdraw, 4: count denied requests), which of the request's layers
--   on its state it is, from 0 on (4 x uint8), maximum, cost, pending, and three numbers of the algorithm (6 x float64).
--   Of a lease, pending is how much is wanted, if there is room, and a seventh number how long it lasts.
--   Of a refund, maximum is how much of the cost is taken back, pending when it was charged, 0: unknown, and a seventh number how long
--   leases of the limit last, 0: there are none.
-- Answer: now, then for each layer flags (1: allowed, 2: waived, 4: charged, 8: refunded before, 16: a lease), remaining, wait (until a
--   retry; the delay of an allowed request; how much is leased), reset.
-- All in the byte order of '<'. Times and durations are microseconds. They and all counts are whole numbers below 2^53: exact.

local letter, token = string.sub(ARGV[1], 1, 1), string.sub(ARGV[1], 2, 9)
local pack, unpack_, floor, ceil = struct.pack, struct.unpack, math.floor, math.ceil

local keepTokens = 30000000 -- for how long a token is remembered
local recordSize = 24       -- token, time and cost of a charge; the time of a token that must not be charged (again) is -1
--   The cost is below 0 if another one may have been charged than the call asked for: of a lease, of what was made with room or not. In the
--   second key such a charge has a mark, by which its token alone finds it: a member of cost 0 and the same time, the one before its own.
local maxRecords = 16       -- in the state; beyond, they move to the second key
local maxRefused = 1024     -- tokens that must not be charged, remembered for a key

-- algorithm returns its functions:
--   load(key, aux, layer, state): a cell at the time now; state is false if there is none. If the clock is behind the cell's time, cell.back
--     is by how much. A cell that is ahead by more than a window counts all that it counted as of now: nothing is forgotten.
--   decide(cell, layer, cost, before): allowed, remaining, wait
--   charge(cell, layer, cost, other): other if the cost may be another one than the call asked for
--   reset(cell, layer): how long until nothing is used
--   save(cell): the state, and how long it counts
--   used(cell, layer): what is used of the limit, rounded up
--   refund(cell, layer, amount, time, cost): takes back an amount of a charge, as far as that admits no more than if it had not been made
--   lease(cell, layer, lasts): makes ready to charge what is used up to so much later
local function algorithm(number)
--@algorithms
end

-- parse returns the i-th layer.
local function parse(i)
	local number, mode, flags, nth, max, cost, pending, a, b, c = unpack_('<BBBBdddddd', ARGV[i + 1])
	return {number = number, mode = mode, flags = flags, max = max, cost = cost, pending = pending, a = a, b = b, c = c,
		token = nth == 0 and token or string.sub(token, 1, 7) .. string.char(nth),
		allowed = false, remaining = 0, wait = 0, reset = 0, charged = false, cell = false}
end

local function store(cell, state, lasts)
	redis.call('SET', cell.key, state, 'PX', floor((lasts + cell.back) / 1000) + 1)
end

-- Most requests have one layer and no options: they take a shortcut.
if letter == 'n' and #ARGV == 2 then
	local layer = parse(1)
	if layer.flags == 0 and layer.pending == 0 then
		local load, decide, charge, reset, save = algorithm(layer.number)
		local cell = load(KEYS[1], KEYS[2], layer, redis.call('GET', KEYS[1]))
		if cell.void <= now and #cell.records < (maxRecords - 1) * recordSize then
			local cost = layer.cost
			local allowed, remaining, wait = decide(cell, layer, cost, 0)
			local flags, shadow = 0, layer.mode == 2
			if allowed then
				flags = 1
				if cost > 0 then
					flags, remaining = 5, remaining - cost
					charge(cell, layer, cost)
					if layer.number ~= 3 then
						cell.records = cell.records .. pack('<c8dd', token, now + cell.back, cost)
					end
					cell.dirty = true
				end
				if shadow then
					wait = 0
				end
			elseif shadow then
				flags = 3
			end
			if cell.dirty then
				local state, lasts = save(cell)
				store(cell, state .. cell.records, lasts)
			end
			return pack('<dBddd', now, flags, remaining, wait, reset(cell, layer))
		end
	end
end

local layers, cells, algorithms = {}, {}, {}

-- position returns where the state has the record of the token.
local function position(cell, token)
	local at = string.find(cell.records, token, 1, true)
	while at and at % recordSize ~= 1 do
		at = string.find(cell.records, token, at + 1, true)
	end
	return at
end

-- find returns time and cost of the charge that the token made; the time is -1 if it must not be charged.
local function find(cell, layer)
	local token = layer.token
	local at = position(cell, token)
	if at then
		local time, cost = unpack_('<dd', cell.records, at + 8)
		return time, cost, at
	end
	local time = redis.call('ZSCORE', cell.aux, pack('<c8d', token, layer.cost))
	if time then
		return tonumber(time), layer.cost
	end
	if letter ~= 'n' or layer.flags >= 2 then
		local mark = redis.call('ZRANK', cell.aux, pack('<c8d', token, 0))
		local beside = mark and redis.call('ZRANGE', cell.aux, mark + 1, mark + 1, 'WITHSCORES') or {}
		if #beside == 2 and string.sub(beside[1], 1, 8) == token then
			local _, cost = unpack_('<c8d', beside[1])
			return tonumber(beside[2]), cost
		end
	end
end

-- open returns the cell of a layer.
local function open(i, layer)
	local key = KEYS[2 * i - 1]
	local cell = cells[key]
	if not cell then
		cell = layer.algorithm.load(key, KEYS[2 * i], layer, redis.call('GET', key))
		cells[key] = cell
		cells[#cells + 1] = cell
		cell.algorithm = layer.algorithm
	end
	return cell
end

-- spill makes room in the state: tokens that are still remembered move to the second key, those that must not be charged stay.
local function spill(cell)
	local kept, moved = {}, {}
	for at = 1, #cell.records, recordSize do
		local time, cost = unpack_('<dd', cell.records, at + 8)
		if time == -1 then
			if cell.void > now then
				kept[#kept + 1] = string.sub(cell.records, at, at + recordSize - 1)
			end
		elseif time > now - keepTokens then
			moved[#moved + 1] = time
			moved[#moved + 1] = string.sub(cell.records, at, at + 7) .. pack('<d', cost)
			if cost < 0 then
				moved[#moved + 1] = time
				moved[#moved + 1] = string.sub(cell.records, at, at + 7) .. pack('<d', 0)
			end
		end
	end
	cell.records = table.concat(kept, '', 1, math.min(#kept, maxRefused))
	if #moved > 0 then
		redis.call('ZADD', cell.aux, unpack(moved))
		redis.call('ZREMRANGEBYSCORE', cell.aux, '-inf', now - keepTokens)
		redis.call('PEXPIRE', cell.aux, keepTokens / 1000)
	end
end

local function charge(layer, cost, other)
	local cell = layer.cell
	layer.algorithm.charge(cell, layer, cost, other)
	cell.dirty = true
	layer.charged = true
	if layer.number ~= 3 then -- a log has all tokens
		cell.records = cell.records .. pack('<c8dd', layer.token, now + cell.back, other and -cost or cost)
		cell.added = true
	end
end

-- overdraw charges a cost with room or not, up to twice the maximum.
local function overdraw(layer, cost)
	local counted = math.min(cost, 2 * layer.max - math.min(layer.algorithm.used(layer.cell, layer), 2 * layer.max))
	if counted > 0 then
		charge(layer, counted, true)
	end
	return counted
end

local function decide(layer, before)
	layer.allowed, layer.remaining, layer.wait = layer.algorithm.decide(layer.cell, layer, layer.cost, before)
	layer.reset = layer.algorithm.reset(layer.cell, layer)
end

-- countDenied counts a denied request, and updates how long it has to wait.
local function countDenied(layer, before)
	if overdraw(layer, layer.cost) > 0 then
		local wait = layer.wait
		decide(layer, before)
		if layer.allowed then
			layer.allowed, layer.wait = false, wait
		end
	end
end

-- Modes: 0 enforce, 1 soft, 2 shadow, 3 quota, 5 throttle.
local function quotasFull()
	local full = false
	for _, layer in ipairs(layers) do
		if layer.mode == 3 then
			if layer.allowed then
				return false
			end
			full = true
		end
	end
	return full
end

local function passes()
	for _, layer in ipairs(layers) do
		if not layer.allowed and layer.mode ~= 2 and layer.mode ~= 3 then
			return false
		end
	end
	return not quotasFull()
end

-- chargedBefore is what earlier layers charge to the cell of the layer i: all have to fit in together.
local function chargedBefore(i)
	local sum = 0
	for j = 1, i - 1 do
		local layer = layers[j]
		if layer.cell == layers[i].cell and layer.cost > 0 and layer.cost <= layer.max and not layer.had and
			(layer.allowed or layer.mode ~= 2 and layer.mode ~= 3) then
			sum = sum + layer.cost
		end
	end
	return sum
end

local function take()
	for i, layer in ipairs(layers) do
		local before = layer.pending
		if i > 1 then
			before = before + chargedBefore(i)
		end
		decide(layer, before)
		if layer.had then
			if layer.over then
				if layer.allowed then -- there is room by now, for another request
					layer.allowed, layer.wait = false, 1
				end
			else
				layer.allowed = true
				if layer.number ~= 6 then
					layer.wait = 0
				end
			end
			layer.charged = true
		elseif not layer.allowed and layer.cost > 0 and layer.flags >= 4 then
			countDenied(layer, before)
		end
	end
	local passed = passes()
	for _, layer in ipairs(layers) do
		local each, over = layer.flags % 2 == 1, layer.flags % 4 >= 2
		if layer.cost > 0 and not layer.had then
			if not layer.allowed then
				if over and layer.flags < 4 and layer.max > 0 then
					countDenied(layer, 0)
				end
			elseif passed or each or over then
				decide(layer, 0)
				if layer.allowed then
					charge(layer, layer.cost)
					local wait = layer.wait
					decide(layer, 0)
					layer.allowed, layer.wait = true, wait
				elseif layer.flags >= 4 then -- a later layer counted its denial on the same state
					countDenied(layer, 0)
				end
			end
		end
	end
	local full = quotasFull()
	for _, layer in ipairs(layers) do
		if layer.mode == 2 and layer.allowed then
			layer.wait = 0
		end
		if not layer.allowed and (layer.mode == 2 or layer.mode == 3 and not full) then
			layer.allowed, layer.waived = true, true
		end
	end
end

-- lease charges as much as is wanted and there is room for. Where there is room for the cost alone, it is a take.
local function lease(layer)
	local cell, wanted = layer.cell, layer.pending
	decide(layer, 0)
	if not layer.allowed then
		return
	end
	local granted = layer.cost
	local debt = cell.debt
	layer.algorithm.lease(cell, layer, layer.lasts)
	decide(layer, 0)
	if layer.allowed then
		granted = math.min(wanted, layer.remaining)
		granted = math.max(layer.cost, granted - granted % layer.cost)
		layer.leased = true
	else
		cell.debt, cell.lead = debt, 0
	end
	charge(layer, granted, true)
	decide(layer, 0)
	layer.allowed, layer.wait = true, granted
end

-- refuse remembers that the token must not be charged, or not be refunded again.
local function refuse(cell, token)
	cell.records = pack('<c8dd', token, -1, 0) .. cell.records
	cell.void = now + keepTokens
	cell.dirty, cell.added = true, true
end

local function refund(layer)
	local cell = layer.cell
	local time, cost, at = find(cell, layer)
	if time == -1 then
		layer.refunded = true
		return
	end
	if time then
		layer.charged = true
		layer.algorithm.refund(cell, layer, math.min(layer.max, math.abs(cost)), time, cost)
		if at then
			cell.records = string.sub(cell.records, 1, at - 1) .. string.sub(cell.records, at + recordSize)
		elseif layer.number ~= 3 then
			redis.call('ZREM', cell.aux, pack('<c8d', layer.token, cost), pack('<c8d', layer.token, 0))
		end
	elseif layer.pending > 0 then -- it was charged so long ago that its token is forgotten
		layer.charged = true
		layer.algorithm.refund(cell, layer, math.min(layer.max, layer.cost), layer.pending, layer.cost)
	end
	refuse(cell, layer.token)
end

-- settle has a first attempt that arrives later charge nothing: it has to look up its token.
local function settle(layer)
	if layer.charged then
		layer.cell.void = now + keepTokens
	else
		refuse(layer.cell, layer.token)
	end
end

local again = letter == 'r' or letter == 'p'
for i = 2, #ARGV do
	local layer = parse(i - 1)
	local known = algorithms[layer.number]
	if not known then
		local load, decide, charge, reset, save, used, refund, lease = algorithm(layer.number)
		known = {load = load, decide = decide, charge = charge, reset = reset, save = save, used = used, refund = refund, lease = lease}
		algorithms[layer.number] = known
	end
	layer.algorithm = known
	if letter == 'l' or letter == 'x' then
		layer.lasts = unpack_('<d', ARGV[i], 53)
	end
	local cell = open(i - 1, layer)
	layer.cell = cell
	if again or cell.void > now and letter ~= 'x' then -- seldom
		local time, cost = find(cell, layer)
		if time == -1 then
			return redis.error_reply('VOID the request was given up')
		end
		layer.had, layer.over = time, time and cost < 0
	end
	layers[i - 1] = layer
end

if letter == 'n' or letter == 'r' then
	take()
elseif letter == 'l' then
	lease(layers[1])
else
	for _, layer in ipairs(layers) do
		if letter == 'x' then
			refund(layer)
		elseif not layer.had and layer.cost > 0 then
			overdraw(layer, layer.cost)
		end
	end
end

if again then
	for _, layer in ipairs(layers) do
		if layer.cost > 0 and not layer.had then
			settle(layer)
		end
	end
end

for _, cell in ipairs(cells) do
	if cell.dirty then
		if cell.added and #cell.records >= maxRecords * recordSize then
			spill(cell)
		end
		local state, lasts = cell.algorithm.save(cell)
		if cell.void > now then
			lasts = math.max(lasts, keepTokens)
		end
		store(cell, state .. cell.records, lasts)
	end
end

local answer = {pack('<d', now)}
for i, layer in ipairs(layers) do
	answer[i + 1] = pack('<Bddd', (layer.allowed and 1 or 0) + (layer.waived and 2 or 0) + (layer.charged and 4 or 0) +
		(layer.refunded and 8 or 0) + (layer.leased and 16 or 0), layer.remaining, layer.wait, layer.reset)
end
return table.concat(answer)
