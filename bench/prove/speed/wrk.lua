-- Requests of browsers, made before the run and sent in turn: while wrk measures it makes nothing, and its collector has nothing to do.
-- The argument is a file with a path, the address of a client and the number of a browser in each line.

local browsers = {
	{ "Windows NT 10.0; Win64; x64", "Windows" }, { "Macintosh; Intel Mac OS X 10_15_7", "macOS" },
	{ "X11; Linux x86_64", "Linux" }, { "X11; CrOS x86_64 14541.0.0", "Chrome OS" },
}

local form = "GET %s HTTP/1.1\r\n"
	.. "Host: %s\r\n"
	.. "User-Agent: Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.0.0 Safari/537.36\r\n"
	.. "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n"
	.. "Accept-Encoding: gzip, deflate, br, zstd\r\n"
	.. "Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n"
	.. 'Sec-Ch-Ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"\r\n'
	.. "Sec-Ch-Ua-Mobile: ?0\r\n"
	.. 'Sec-Ch-Ua-Platform: "%s"\r\n'
	.. "Sec-Fetch-Dest: document\r\n"
	.. "Sec-Fetch-Mode: navigate\r\n"
	.. "Sec-Fetch-Site: cross-site\r\n"
	.. "Upgrade-Insecure-Requests: 1\r\n"
	.. "Referer: https://mail.example.net/\r\n"
	.. "X-Forwarded-For: %s\r\n\r\n"

local requests, n, at = {}, 0, 0

function init(arguments)
	for line in io.lines(arguments[1]) do
		local path, client, browser = line:match("^(%S+) (%S+) (%d+)$")
		local b = browsers[browser % #browsers + 1]
		n = n + 1
		requests[n] = form:format(path, wrk.host .. ":" .. wrk.port, b[1], 136 + browser / #browsers, b[2], client)
	end
	collectgarbage()
	collectgarbage("stop")
	io.write("began ", os.clock(), "\n")
end

function request()
	at = at % n + 1
	return requests[at]
end

function done(summary, latency)
	local failed = summary.errors
	io.write(string.format(
		'result {"cpu":%f,"requests":%d,"microseconds":%d,"status":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,'
			.. '"p50":%d,"p90":%d,"p99":%d,"p999":%d,"max":%d}\n',
		os.clock(), summary.requests, summary.duration, failed.status, failed.connect, failed.read, failed.write, failed.timeout,
		latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9), latency.max))
end
