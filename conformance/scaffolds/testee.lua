-- A testee for refdist's conformance suite, to begin with: it answers cases, one JSON object on each line.
-- It needs Lua 5.3 or later, whose integers and floats differ, and nothing else.
--
-- Put calls of your implementation in place of the first part. The second part carries out the steps of a case; what
-- it does not know yet it answers with `skip`, and the end of a run lists that: there you see what comes next.
local HAS = {"OneDevice", "Mirrored", "Central", "all_reduce"} -- cases that need anything else are not sent

-- What goes wrong: a kind (value, type, context, ...; "skip": this testee lacks something), and a message.
local function fail(kind, message) error({kind = kind, message = message}) end

-- Values are tables of these classes; the last one is JSON's null.
local Array, PerReplica, List, null = {}, {}, {}, {}
local function is(class, value) return getmetatable(value) == class end
local function list(items) return setmetatable(items, List) end

-- The implementation: arrays of float32 and int32 with one dimension or none, and replicas that are coroutines.
local function rounded(dtype, x)
  if dtype == "int32" then return (x + 0x80000000) % 0x100000000 - 0x80000000 end
  return (string.unpack("f", string.pack("f", x)))
end

local function array(dtype, shape, numbers)
  local data = list({})
  for at, x in ipairs(numbers) do data[at] = rounded(dtype, x) end
  return setmetatable({dtype = dtype, shape = shape, data = data}, Array)
end

local function constant(value)
  local numbers = is(List, value) and value or {value}
  local kind = math.type(numbers[1])
  for _, x in ipairs(numbers) do kind = math.type(x) == kind and kind end
  local dtype = ({integer = "int32", float = "float32"})[kind] or fail("skip", "arrays of other values")
  return array(dtype, list(numbers == value and {#numbers} or {}), numbers)
end

local function all_reduce(op, value)
  if op ~= "SUM" then fail("skip", "reduce ops other than SUM") end
  local total, wrong = coroutine.yield(is(Array, value) and value or constant(value))
  return total or error(wrong)
end

local function combined(given, count)
  local first, sums = given[1], {table.unpack(given[1].data)}
  if #given < count then return nil, {kind = "context", message = "another replica does not come to this call"} end
  for n = 2, #given do
    local other = given[n]
    if other.dtype ~= first.dtype or #other.shape ~= #first.shape or #other.data ~= #first.data then
      return nil, {kind = "value", message = "the dtypes or shapes of the replicas differ"}
    end
    for at, x in ipairs(other.data) do sums[at] = sums[at] + x end
  end
  return array(first.dtype, first.shape, sums)
end

local function run(count, body, args)
  local replicas, results, failure, total, wrong, given = {}, setmetatable({}, PerReplica), nil, nil, nil, nil
  for i = 1, count do
    local own = {}
    for n, arg in ipairs(args or {}) do own[n] = is(PerReplica, arg) and arg[i] or arg end
    replicas[i] = coroutine.create(function() return body(i - 1, own) end)
  end
  repeat -- until all replicas have ended; each goes on to its next call
    given = {}
    for i, replica in ipairs(replicas) do
      if coroutine.status(replica) == "suspended" then
        local right, value = coroutine.resume(replica, total, wrong)
        if not right then
          failure = failure and (failure.kind == "skip" or value.kind ~= "skip") and failure or value
        elseif coroutine.status(replica) == "suspended" then
          given[#given + 1] = value
        else
          results[i] = value
        end
      end
    end
    if #given > 0 then total, wrong = combined(given, count) end
  until #given == 0
  if failure then error(failure) end
  for _, value in ipairs(results) do
    if not is(Array, value) then fail("skip", "replicas that return anything but arrays") end
  end
  return count == 1 and results[1] or results
end

-- JSON.
local ESCAPES = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t"}
local WORDS = {["true"] = true, ["false"] = false, null = null}

local function decoded(text)
  local at = 1
  local function token(pattern)
    at = text:find("%S", at)
    local matched = text:match("^" .. pattern, at)
    at = at + #(matched or "")
    return matched
  end
  local function quoted() -- behind the first quote
    local from, stop, char = at, nil, nil
    repeat
      stop, _, char = text:find('(["\\])', at)
      at = stop + (char == "\\" and 2 or 1)
    until char == '"'
    return (text:sub(from, stop - 1):gsub("\\(.)(%x?%x?%x?%x?)", function(letter, hex)
      return letter == "u" and utf8.char(tonumber(hex, 16)) or (ESCAPES[letter] or letter) .. hex
    end))
  end
  local function value()
    local char = token('[{%["]')
    if char == '"' then return quoted() end
    if not char then
      local word = token("%a+")
      if word then return WORDS[word] end
      return tonumber(token("[-+.%deE]+"))
    end
    local container = char == "[" and list({}) or {}
    if token(char == "[" and "%]" or "}") then return container end
    repeat
      local key = #container + 1
      if char == "{" then
        token('"')
        key = quoted()
        token(":")
      end
      container[key] = value()
    until token("[,%]}]") ~= ","
    return container
  end
  return value()
end

local function encoded(value)
  if value == null then return "null" end
  if type(value) == "string" then
    return '"' .. value:gsub('[%c"\\]', function(char) return ("\\u%04x"):format(char:byte()) end) .. '"'
  end
  if type(value) ~= "table" then return math.type(value) == "float" and ("%.17g"):format(value) or tostring(value) end
  local items = {}
  for key, item in pairs(value) do
    items[#items + 1] = is(List, value) and encoded(item) or encoded(key) .. ":" .. encoded(item)
  end
  if is(List, value) then return "[" .. table.concat(items, ",") .. "]" end
  table.sort(items)
  return "{" .. table.concat(items, ",") .. "}"
end

-- The steps of a case. `i` is the number of the replica that carries them out, and nil outside of `run`.
local function known(description, ...)
  local keys = {}
  for _, key in ipairs({...}) do keys[key] = true end
  for key in pairs(description) do if not keys[key] then fail("skip", "the key " .. key) end end
end

-- A value as a result.
local function as_result(value)
  if math.type(value) == "integer" then return {int = value} end
  if is(PerReplica, value) then
    local parts = list({})
    for n, part in ipairs(value) do parts[n] = as_result(part) end
    return {per_replica = parts}
  end
  if not is(Array, value) then fail("skip", "other results than arrays and integers") end
  for _, x in ipairs(value.data) do
    if x ~= x or x - x ~= 0 or 1 / x == -math.huge then fail("skip", "numbers that JSON lacks") end
  end
  return {dtype = value.dtype, shape = value.shape, data = value.data}
end

local function answer(case)
  if not case.programs then return {skip = case.only_python} end
  local STRATEGY, REPLICA = {}, {}
  local valued

  local function stepped(name, args, i)
    if name == "call tf.constant" and #args == 1 then return constant(args[1]) end
    if name == "call tf.distribute.get_replica_context" and i then return REPLICA end
    if name == "method all_reduce" and args[1] == REPLICA and #args == 3 then return all_reduce(args[2], args[3]) end
    if name == "get replica_id_in_sync_group" and args[1] == REPLICA then return i end
    if name == "operator int" and math.type(args[1]) == "integer" then return args[1] end
    if (name == "method run" or name == "method run args") and args[1] == STRATEGY and not i then
      if #args == 3 and not is(List, args[3]) then fail("value", "the arguments are not in a list") end
      return run(case.strategy.replicas, args[2], args[3])
    end
    fail("skip", name)
  end

  local function carry_out(steps, values, i)
    for _, step in ipairs(steps or {}) do
      known(step, "call", "method", "get", "operator", "args", "kwargs", "id", "is")
      local args, name = {}, nil
      for _, kind in ipairs({"call", "method", "get", "operator"}) do
        if step[kind] then name = kind .. " " .. tostring(step[kind]) end
      end
      for n, tree in ipairs(step.args or {}) do args[n] = valued(tree, values) end
      for key, tree in pairs(step.kwargs or {}) do
        name, args[#args + 1] = name .. " " .. key, valued(tree, values)
      end
      local result = stepped(name, args, i)
      if step.is ~= nil and encoded(as_result(result)) ~= encoded(step.is) then error("the program goes another way") end
      if step.id then values[step.id] = result end
    end
  end

  local function call(bodies, outer, i, args)
    local at = 1
    while bodies[at].replica and bodies[at].replica ~= i do at = at + 1 end
    local body = bodies[at].replica and table.remove(bodies, at) or bodies[at]
    known(body, "replica", "parameters", "steps", "returns")
    local values, parameters = setmetatable({}, {__index = outer}), body.parameters or {}
    if #parameters ~= #args then fail("type", "another number of arguments") end
    for n, id in ipairs(parameters) do values[id] = args[n] end
    carry_out(body.steps, values, i)
    return valued(body.returns, values)
  end

  function valued(tree, values)
    if type(tree) ~= "table" or tree == null then return tree end
    local kind, content = next(tree)
    if kind == "ref" then return values[content] end
    if kind == "int" or kind == "float" or kind == "ints" or kind == "floats" then return content end
    if kind == "function" then return function(i, args) return call(content.bodies, values, i, args) end end
    if kind == "name" and content == "strategy" then return STRATEGY end
    if kind ~= "list" and kind ~= "tuple" then fail("skip", "the value " .. kind) end
    local items = list({})
    for n, item in ipairs(content) do items[n] = valued(item, values) end
    return items
  end

  local values, pairs_of_answer, wanted = {}, list({}), {}
  for _, number in ipairs(case.observe) do wanted[number] = true end
  for _, statement in ipairs(case.programs[1]) do
    local number = statement.statement
    local right, result = pcall(function()
      carry_out(statement.steps, values)
      return wanted[number] and as_result(valued(statement.value, values))
    end)
    if not right then
      local kind, message = "crash", result
      if type(result) == "table" then kind, message = result.kind, result.message end
      if kind == "skip" then return {skip = message} end
      result = {error = kind, message = message}
    end
    if wanted[number] or not right then table.insert(pairs_of_answer, list({number, result})) end
    if not right and not wanted[number] then break end
  end
  return {answers = list({pairs_of_answer})}
end

io.read("l") -- what the suite says of itself
io.write(encoded({protocol = 1, name = "mine", version = "0.1", has = list(HAS)}), "\n")
io.flush()
for line in io.lines() do
  local question = decoded(line)
  local said = answer(question.case)
  said.id = question.id
  io.write(encoded(said), "\n")
  io.flush()
end
