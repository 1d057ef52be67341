-- wrk: GET of random tasks, numbers below ROWS.
local rows = tonumber(os.getenv("ROWS"))

function request()
  return wrk.format("GET", "/tasks/task%5B" .. math.random(0, rows - 1) .. "%5D")
end
