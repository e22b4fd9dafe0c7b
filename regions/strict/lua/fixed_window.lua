-- Fixed window: number of the window, void, count. a: length of the window.
local function load(key, aux, layer, state)
	local window = layer.a
	local index, count, back, void, records = floor(now / window), 0, 0, 0, ''
	if state then
		local was
		was, void, count = unpack_('<ddd', state)
		if was > index + 1 then -- far ahead: the count moves to now
			void = 0
		else
			records = string.sub(state, 25)
			if was > index then
				index, back = was, was * window - now
			elseif was < index then
				count = 0
			end
		end
	end
	return {key = key, aux = aux, back = back, void = void, records = records, window = window, index = index, count = count}
end

local function used(cell)
	return cell.count
end

local function reset(cell)
	return cell.count > 0 and (cell.index + 1) * cell.window - now or 0
end

local function decide(cell, layer, cost, before)
	local seen, max, wait = cell.count + before, layer.max, 0
	local asked = cost > 0 and cost or 1
	local allowed = asked <= max and seen <= max - asked
	if not allowed then
		wait = asked + before > max and -1 or (cell.index + 1) * cell.window - now
	end
	return allowed, seen < max and max - seen or 0, wait
end

local function charge(cell, layer, cost)
	cell.count = cell.count + cost
end

-- A lease ends with the (sub-)window that it is charged in.
local function lease(cell, layer, lasts)
end

local function refund(cell, layer, cost, time)
	if floor(time / cell.window) == cell.index then
		cell.count = math.max(0, cell.count - cost)
	end
end

local function save(cell)
	return pack('<ddd', cell.index, cell.void, cell.count), cell.window
end

return load, decide, charge, reset, save, used, refund, lease
