package rawhttp

import (
	"fmt"
	"strings"
)

const (
	sentID = "sent"
	// Host is part of each request without another Host.
	Host = "Host: localhost\r\nX-Request-Id: " + sentID + "\r\n"
	// post stands for the start of a request whose body is read.
	post = "{post}"
	// get starts a request for an unknown path.
	get = "GET /nothing HTTP/1.1\r\n" + Host

	// hidden is a request inside a body; it must never get a response.
	hiddenID = "hidden"
	hidden   = "/hidden"
	inside   = "GET " + hidden + " HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + hiddenID + "\r\n\r\n"

	// printable has each byte from 0x20 to 0x7E; a space at the end of a value is not part of it.
	printable = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|} ~"

	chunked = "Transfer-Encoding: chunked\r\n\r\n"
	noPath  = "none"
)

// request is a row of the corpus.
type request struct {
	name, sent string
	// path is the path in the envelope: by default that of the request, none if no path could be read.
	path string
	// id is the request id in the response: sentID by default.
	id   string
	noID bool // no readable request id is sent
	cut  bool // the client sends nothing more, and closes its sending side
	// stays: behind nginx the client does not close its side. nginx passes on the response only if it arrives before nginx notices the
	// close.
	stays bool
	// vague: for a request that arrives together with the previous one, path and request id may be unknown.
	vague bool
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// chunk returns a chunk of a body.
func chunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }

func corpus() []request {
	var all []request
	for _, part := range [][]request{lines(), paths(), fields(), lengths(), chunks(), hiding(), sizes(), expectations(), several()} {
		all = append(all, part...)
	}
	return all
}

// lines vary the request line.
func lines() []request {
	line := func(name, line, path string) request {
		return request{name: name, sent: line + "\r\n" + Host + "\r\n", path: path}
	}
	return []request{
		line("as it should be", "GET /nothing HTTP/1.1", ""),
		line("HEAD", "HEAD /nothing HTTP/1.1", ""),
		line("a version of the past", "GET /nothing HTTP/1.0", ""),
		{name: "a version of the past that stays", sent: "GET /nothing HTTP/1.0\r\n" + Host + "Connection: keep-alive\r\n\r\n"},
		{name: "HTTP/0.9", sent: "GET /nothing\r\n", noID: true, cut: true, stays: true},
		line("no version", "GET /nothing", ""),
		line("version 1.2", "GET /nothing HTTP/1.2", ""),
		line("version 2.0", "GET /nothing HTTP/2.0", ""),
		line("version 9.9", "GET /nothing HTTP/9.9", ""),
		line("a lower-case version", "GET /nothing http/1.1", ""),
		line("a version with more digits", "GET /nothing HTTP/1.10", ""),
		line("another protocol", "GET /nothing RTSP/1.0", ""),
		{name: "the preface of HTTP/2", sent: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", path: "*", noID: true},
		{name: "TLS", sent: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", path: noPath, noID: true},
		{name: "one word", sent: "hello\r\n\r\n", path: noPath, noID: true},
		line("no method", " /nothing HTTP/1.1", noPath),
		line("two spaces", "GET  /nothing HTTP/1.1", noPath),
		line("a tab for a space", "GET\t/nothing\tHTTP/1.1", noPath),
		line("a space at the end", "GET /nothing HTTP/1.1 ", noPath),
		line("a space in the target", "GET /nothing at all HTTP/1.1", noPath),
		{name: "an empty line before", sent: "\r\n" + get + "\r\n"},
		{name: "a bare LF after the request line", sent: "GET /nothing HTTP/1.1\n" + Host + "\r\n"},
		{name: "a bare CR after the request line", sent: "GET /nothing HTTP/1.1\r" + Host + "\r\n", path: noPath},
		line("a lower-case method", "get /nothing HTTP/1.1", ""),
		line("an unknown method", "BREW /nothing HTTP/1.1", ""),
		line("a method that is no word", "GE(T /nothing HTTP/1.1", ""),
		line("a method with a NUL", "GE\x00T /nothing HTTP/1.1", ""),
		line("a method of 1,000 letters", repeat("A", 1000)+" /nothing HTTP/1.1", ""),
		line("OPTIONS", "OPTIONS /nothing HTTP/1.1", ""),
		line("TRACE", "TRACE /nothing HTTP/1.1", ""),
		line("TRACE of what is there", "TRACE /healthz HTTP/1.1", "/healthz"),
		line("a method that is not for the path", "DELETE /healthz HTTP/1.1", "/healthz"),
		line("CONNECT", "CONNECT evil.example:443 HTTP/1.1", "evil.example:443"),
		line("CONNECT to a path", "CONNECT /nothing HTTP/1.1", ""),
		line("asterisk form", "OPTIONS * HTTP/1.1", "*"),
		line("asterisk form of GET", "GET * HTTP/1.1", "*"),
		line("absolute form", "GET http://localhost/nothing HTTP/1.1", ""),
		line("absolute form of another host", "GET http://evil.example/nothing HTTP/1.1", ""),
		line("absolute form without path", "GET http://evil.example HTTP/1.1", "/"),
		line("absolute form of another scheme", "GET ftp://evil.example/nothing HTTP/1.1", ""),
		line("a target with a scheme and no host", "GET javascript:alert(1) HTTP/1.1", noPath),
		line("a target without slash", "GET nothing HTTP/1.1", noPath),
	}
}

// paths vary the path, which neither program decodes or normalizes.
func paths() []request {
	var all []request
	for _, row := range []struct{ name, path string }{
		{"an encoded slash", "/a%2fb"}, {"an encoded backslash", "/a%5Cb"}, {"an encoded letter", "/%6eothing"}, {"an encoded NUL", "/a%00b"},
		{"an encoded line break", "/a%0d%0aX:%201"}, {"a percent sign alone", "/a%"}, {"one digit", "/a%2"}, {"no digits", "/a%zz"},
		{"an encoded percent sign", "/a%252fb"}, {"overlong UTF-8", "/a%c0%af"}, {"a surrogate", "/a%ed%a0%80"}, {"encoded UTF-8", "/%e2%98%83"},
		{"a dot segment", "/a/../nothing"}, {"a dot segment first", "/../nothing"}, {"a single dot", "/./nothing"},
		{"an encoded dot segment", "/a/%2e%2E/nothing"}, {"a dot segment half encoded", "/a/.%2e/nothing"}, {"a dot segment last", "/nothing/.."},
		{"a dot segment with a parameter", "/a/..;/nothing"}, {"two slashes", "//nothing"}, {"two slashes before a host", "//evil.example/%2e%2e"},
		{"a slash at the end", "/nothing/"}, {"a backslash", `/\evil.example`}, {"a fragment", "/nothing#a"}, {"a semicolon", "/nothing;a=b"},
		{"a space, encoded", "/no%20thing"}, {"a plus sign", "/no+thing"}, {"markup", "/<script>"}, {"quotes", `/"'`},
	} {
		all = append(all, request{name: "path: " + row.name, sent: "GET " + row.path + " HTTP/1.1\r\n" + Host + "\r\n", path: row.path})
	}
	return append(all,
		request{name: "path: a query", sent: "GET /nothing?secret=1 HTTP/1.1\r\n" + Host + "\r\n"},
		request{name: "path: a bad query", sent: "GET /nothing?%zz&%00;=&&& HTTP/1.1\r\n" + Host + "\r\n"},
		request{name: "path: a NUL", sent: "GET /no\x00thing HTTP/1.1\r\n" + Host + "\r\n", path: "/no\x00thing"},
		request{name: "path: a control character", sent: "GET /no\x01thing HTTP/1.1\r\n" + Host + "\r\n", path: "/no\x01thing"},
		request{name: "path: a delete character", sent: "GET /no\x7fthing HTTP/1.1\r\n" + Host + "\r\n", path: "/no\x7fthing"},
		request{name: "path: a bare CR", sent: "GET /no\rthing HTTP/1.1\r\n" + Host + "\r\n", path: "/no\rthing"},
		request{name: "path: a tab", sent: "GET /no\tthing HTTP/1.1\r\n" + Host + "\r\n", path: "/no\tthing"},
		request{name: "path: bytes above 127", sent: "GET /nothing\xe2\x98\x83 HTTP/1.1\r\n" + Host + "\r\n", path: "/nothing\u2603"},
		request{name: "path: broken UTF-8", sent: "GET /nothing\xff HTTP/1.1\r\n" + Host + "\r\n", path: "/nothing\ufffd"},
	)
}

// fields vary header lines, including Host.
func fields() []request {
	var all []request
	for _, row := range []struct{ name, line string }{
		{"without colon", "nothing"}, {"without name", ": x"}, {"a space before the colon", "X : y"}, {"a space in the name", "X Y: z"},
		{"a tab before the colon", "X\t: y"}, {"a name that is no word", "X(Y): z"}, {"a name above 127", "X\xff: z"}, {"a NUL in the name", "X\x00: z"},
		{"a NUL", "X: a\x00b"}, {"a bare CR", "X: a\rb"}, {"a control character", "X: a\x01b"}, {"a delete character", "X: a\x7fb"},
		{"broken UTF-8", "X: \xff\xfe"}, {"a value that goes on in the next line", "X: a\r\n b"}, {"no value", "X:"}, {"a tab in the value", "X: a\tb"},
		{"a second request id", "X-Request-Id: other"}, {"the same request id twice", "X-Request-Id: " + sentID},
		{"an upgrade", "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\nSec-WebSocket-Version: 13"},
		{"an upgrade to HTTP/2", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		{"an option that hides a header", "Connection: close, X-Request-Id"}, {"a forwarded host", "X-Forwarded-Host: evil.example"},
		{"a rewritten URL", "X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz"}, {"another method", "X-HTTP-Method-Override: DELETE"},
		{"a range", "Range: bytes=0-0,0-0,-1"},
	} {
		all = append(all, request{name: "header: " + row.name, sent: get + row.line + "\r\n\r\n", noID: strings.Contains(row.name, "request id")})
	}
	for _, row := range []struct{ name, value, id string }{
		{"all that is printable", printable, printable}, {"255 bytes", repeat("i", 255), repeat("i", 255)}, {"256 bytes", repeat("i", 256), ""},
		{"white space around it", " \t a  b\t ", "a  b"}, {"like another header", "a: b, Set-Cookie: c=d", "a: b, Set-Cookie: c=d"},
		{"encoded line ends", `%0d%0aX-Evil: 1\r\nX-Evil: 1`, `%0d%0aX-Evil: 1\r\nX-Evil: 1`}, {"markup", `"><script>alert('&')</script>`, `"><script>alert('&')</script>`},
		{"empty", "", ""}, {"only white space", " \t ", ""}, {"a tab", "a\tb", ""}, {"not ASCII", "caf\u00e9", ""},
	} {
		all = append(all, request{name: "request id: " + row.name, sent: "GET /nothing HTTP/1.1\r\nHost: localhost\r\nX-Request-Id:" + row.value + "\r\n\r\n",
			id: row.id, noID: row.id == ""})
	}
	for _, row := range []struct{ name, line string }{
		{"none", ""}, {"empty", "Host:\r\n"}, {"two", "Host: localhost\r\nHost: evil.example\r\n"}, {"twice the same", "Host: localhost\r\nHost: localhost\r\n"},
		{"two in one", "Host: localhost, evil.example\r\n"}, {"a slash", "Host: localhost/a\r\n"}, {"a space", "Host: local host\r\n"},
		{"user info", "Host: me@localhost\r\n"}, {"a port that is none", "Host: localhost:http\r\n"}, {"a port that is too large", "Host: localhost:99999999\r\n"},
		{"a broken bracket", "Host: [::1\r\n"}, {"a space before the colon", "Host : localhost\r\n"}, {"on two lines", "Host:\r\n localhost\r\n"},
		{"unknown", "Host: evil.example\r\n"}, {"above 127", "Host: \xd0\xb0pple.example\r\n"}, {"a percent sign", "Host: local%68ost\r\n"},
		{"upper case", "Host: LOCALHOST\r\n"}, {"a dot at the end", "Host: localhost.:80\r\n"}, {"an address", "Host: [2001:db8::1]:80\r\n"},
		{"300 characters", "Host: " + repeat("a.", 150) + "b\r\n"},
	} {
		all = append(all, request{name: "Host: " + row.name, sent: "GET /nothing HTTP/1.1\r\n" + row.line + "X-Request-Id: sent\r\n\r\n"})
	}
	return append(all,
		request{name: "Host: none in the past", sent: "GET /nothing HTTP/1.0\r\nX-Request-Id: sent\r\n\r\n"},
		request{name: "header: a bare LF at the end of a line", sent: "GET /nothing HTTP/1.1\r\nHost: localhost\nX-Request-Id: sent\r\n\r\n"},
		request{name: "header: bare LFs at the end of all", sent: get + "X: y\n\n"},
		request{name: "header: it begins with a space", sent: "GET /nothing HTTP/1.1\r\n X: y\r\n" + Host + "\r\n"},
		request{name: "header: cut off", sent: get + "X: y", cut: true},
		request{name: "header: a request line cut off", sent: "GET /nothi", path: noPath, noID: true, cut: true},
	)
}

// lengths vary Content-Length and Transfer-Encoding of a body that no handler reads.
func lengths() []request {
	var all []request
	for _, row := range []struct{ name, lines, body string }{
		{"a body", "Content-Length: 2\r\n", "{}"}, {"zero", "Content-Length: 0\r\n", ""}, {"a list of equals", "Content-Length: 2, 2\r\n", "{}"},
		{"two", "Content-Length: 0\r\nContent-Length: 2\r\n", "{}"}, {"twice the same", "Content-Length: 2\r\nContent-Length: 2\r\n", "{}"},
		{"a plus sign", "Content-Length: +2\r\n", "{}"}, {"negative", "Content-Length: -2\r\n", "{}"}, {"hexadecimal", "Content-Length: 0x2\r\n", "{}"},
		{"with spaces around", "Content-Length:  2 \r\n", "{}"}, {"a space inside", "Content-Length: 2 0\r\n", "{}"}, {"empty", "Content-Length:\r\n", ""},
		{"leading zeros", "Content-Length: 0000000000000000000002\r\n", "{}"}, {"a fraction", "Content-Length: 2.0\r\n", "{}"},
		{"another script's digits", "Content-Length: \xd9\xa2\r\n", "{}"}, {"more than 64 bits", "Content-Length: 18446744073709551618\r\n", "{}"},
		{"an underscore", "Content-Length: 1_0\r\n", "{}"}, {"an underscore in the name", "Content_Length: 2\r\n", ""},
		{"chunks", "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"}, {"CHUNKS", "Transfer-Encoding: CHUNKED\r\n", "2\r\n{}\r\n0\r\n\r\n"},
		{"chunks and a length", "Transfer-Encoding: chunked\r\nContent-Length: 12\r\n", "2\r\n{}\r\n0\r\n\r\n"},
		{"a length and chunks", "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"},
		{"another coding", "Transfer-Encoding: gzip\r\n", ""}, {"two codings", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"},
		{"chunks twice", "Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"}, {"chunks in two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"},
		{"chunks, then not", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"}, {"not in chunks", "Transfer-Encoding: identity\r\nContent-Length: 2\r\n", "{}"},
		{"a coding without name", "Transfer-Encoding:\r\n", ""}, {"a coding with a tab", "Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n"},
		{"a coding with a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"}, {"a coding in quotes", "Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"},
		{"a coding with a comma", "Transfer-Encoding: chunked,\r\n", "0\r\n\r\n"}, {"a coding with a parameter", "Transfer-Encoding: chunked;a=b\r\n", "0\r\n\r\n"},
		{"a coding with a space before the colon", "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"}, {"a coding on two lines", "Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"},
		{"a coding that is misspelt", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"}, {"a coding with an underscore in its name", "Transfer_Encoding: chunked\r\n", ""},
	} {
		all = append(all, request{name: "length: " + row.name, sent: "POST /nothing HTTP/1.1\r\n" + Host + row.lines + "\r\n" + row.body})
	}
	return append(all,
		request{name: "length: a body of GET", sent: get + "Content-Length: 2\r\n\r\n{}"},
		request{name: "length: chunks of GET", sent: get + chunked + "2\r\n{}\r\n0\r\n\r\n"},
		request{name: "length: chunks of the past", sent: "POST /nothing HTTP/1.0\r\n" + Host + chunked + "2\r\n{}\r\n0\r\n\r\n"},
		request{name: "length: chunks of the past on a connection that stays", sent: "POST /nothing HTTP/1.0\r\n" + Host + "Connection: keep-alive\r\n" + chunked + "0\r\n\r\n" + inside},
		request{name: "length: a body cut off", sent: post + "Content-Length: 100\r\n\r\n{", cut: true},
		request{name: "length: a body that no handler reads cut off", sent: "POST /nothing HTTP/1.1\r\n" + Host + "Content-Length: 100\r\n\r\n{", cut: true},
	)
}

// chunks vary a chunked body that a handler reads. If the chunks are valid, the handler rejects the content {}.
func chunks() []request {
	var all []request
	for _, row := range []struct{ name, body string }{
		{"one", "2\r\n{}\r\n0\r\n\r\n"}, {"two", "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"}, {"leading zeros", "0002\r\n{}\r\n000\r\n\r\n"}, {"no digits", "\r\n{}\r\n0\r\n\r\n"},
		{"a size that is none", "zz\r\n{}\r\n0\r\n\r\n"}, {"a size with 0x", "0x2\r\n{}\r\n0\r\n\r\n"}, {"a plus sign", "+2\r\n{}\r\n0\r\n\r\n"}, {"negative", "-2\r\n{}\r\n0\r\n\r\n"},
		{"a space before", " 2\r\n{}\r\n0\r\n\r\n"}, {"a space behind", "2 \r\n{}\r\n0\r\n\r\n"}, {"an underscore", "0_2\r\n{}\r\n0\r\n\r\n"},
		{"more than 64 bits", "10000000000000002\r\n{}\r\n0\r\n\r\n"}, {"a NUL", "2\x00\r\n{}\r\n0\r\n\r\n"},
		{"an extension", "2;a=b\r\n{}\r\n0\r\n\r\n"}, {"an extension in quotes", "2;a=\"b;c\"\r\n{}\r\n0\r\n\r\n"}, {"an extension with a line break", "2;a=\"\n\"\r\n{}\r\n0\r\n\r\n"},
		{"an extension of 20 KiB", "2;" + repeat("a", 20<<10) + "\r\n{}\r\n0\r\n\r\n"}, {"bare LFs", "2\n{}\n0\n\n"}, {"a bare CR", "2\r{}\r0\r\r"},
		{"longer than it says", "2\r\n{}{}\r\n0\r\n\r\n"}, {"no line break behind", "2\r\n{}0\r\n\r\n"}, {"a trailer", "2\r\n{}\r\n0\r\nX: y\r\n\r\n"},
		{"a trailer that is a length", "2\r\n{}\r\n0\r\nContent-Length: 100\r\n\r\n"}, {"a trailer that is broken", "2\r\n{}\r\n0\r\nX y\r\n\r\n"},
	} {
		all = append(all, request{name: "chunk: " + row.name, sent: post + chunked + row.body})
	}
	for _, row := range []struct{ name, body string }{
		{"the largest of 64 bits", "ffffffffffffffff\r\n{}\r\n0\r\n\r\n"}, {"none at all", ""}, {"a size cut off", "2"}, {"a body cut off", "5\r\n{}"}, {"no last chunk", "2\r\n{}\r\n"}, {"no line behind the last", "2\r\n{}\r\n0\r\n"},
	} {
		all = append(all, request{name: "chunk: " + row.name, sent: post + chunked + row.body, cut: true})
	}
	return all
}

// hiding has a request inside a body, by one interpretation or another.
func hiding() []request {
	begin := "POST /nothing HTTP/1.1\r\n" + Host
	length := fmt.Sprintf("Content-Length: %d\r\n", len(inside))
	return []request{
		{name: "hidden: in a body", sent: begin + length + "\r\n" + inside},
		{name: "hidden: in a body that is read", sent: post + length + "\r\n" + inside},
		{name: "hidden: in a chunk", sent: begin + chunked + chunk(inside) + "0\r\n\r\n"},
		{name: "hidden: in a chunk that is read", sent: post + chunked + chunk(inside) + "0\r\n\r\n"},
		{name: "hidden: in a body of GET", sent: get + length + "\r\n" + inside},
		{name: "hidden: in a chunk of GET", sent: get + chunked + chunk(inside) + "0\r\n\r\n"},
		{name: "hidden: in a body of HEAD", sent: "HEAD /nothing HTTP/1.1\r\n" + Host + length + "\r\n" + inside},
		{name: "hidden: behind the chunks, by its length", sent: begin + fmt.Sprintf("Content-Length: %d\r\n", 5+len(inside)) + chunked + "0\r\n\r\n" + inside},
		{name: "hidden: in the chunks, by its length", sent: begin + "Content-Length: 3\r\n" + chunked + chunk(inside) + "0\r\n\r\n"},
		{name: "hidden: behind the chunks, by its length, that is read", sent: post + fmt.Sprintf("Content-Length: %d\r\n", 5+len(inside)) + chunked + "0\r\n\r\n" + inside},
		{name: "hidden: by two lengths", sent: begin + "Content-Length: 0\r\n" + length + "\r\n" + inside},
		{name: "hidden: by an obscured coding", sent: begin + "Transfer-Encoding: x\r\nTransfer-Encoding : chunked\r\n" + length + "\r\n" + inside},
		{name: "hidden: behind a bad chunk", sent: begin + chunked + "zz\r\n" + inside},
		{name: "hidden: behind a bad chunk that is read", sent: post + chunked + "zz\r\n" + inside},
		{name: "hidden: behind a refused expectation", sent: begin + "Expect: miracles\r\n" + length + "\r\n" + inside},
		{name: "hidden: behind a bad header", sent: get + "X : y\r\n\r\n" + inside},
		{name: "hidden: behind an upgrade", sent: begin + "Connection: upgrade\r\nUpgrade: h2c\r\n" + length + "\r\n" + inside},
	}
}

// sizes exceed limits.
func sizes() []request {
	large := repeat(" ", 80<<10)
	return []request{
		{name: "size: a query of 5 KiB", sent: "GET /nothing?" + repeat("a", 5<<10) + " HTTP/1.1\r\n" + Host + "\r\n"},
		{name: "size: a target of 40 KiB", sent: "GET /nothing?" + repeat("a", 40<<10) + " HTTP/1.1\r\n" + Host + "\r\n", noID: true},
		{name: "size: a path of 40 KiB", sent: "GET /" + repeat("a", 40<<10) + " HTTP/1.1\r\n" + Host + "\r\n", path: noPath, noID: true},
		{name: "size: a header of 40 KiB", sent: get + "X: " + repeat("a", 40<<10) + "\r\n\r\n"},
		{name: "size: a name of 40 KiB", sent: get + repeat("a", 40<<10) + ": x\r\n\r\n"},
		{name: "size: 10,000 headers", sent: get + repeat("X: y\r\n", 10_000) + "\r\n"},
		{name: "size: 100 headers", sent: get + repeat("X: y\r\n", 100) + "\r\n"},
		{name: "size: a body of 80 KiB", sent: post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large)},
		{name: "size: a chunk of 80 KiB", sent: post + chunked + chunk(large) + "0\r\n\r\n"},
		{name: "size: chunks of 80 KiB", sent: post + chunked + repeat(chunk(large[:4<<10]), 20) + "0\r\n\r\n"},
		{name: "size: a body of 1 GB that never comes", sent: post + "Content-Length: 1000000000\r\n\r\n", cut: true},
		{name: "size: a body of 80 KiB that no handler reads", sent: "POST /nothing HTTP/1.1\r\n" + Host + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large)},
	}
}

// expectations vary Expect.
func expectations() []request {
	return []request{
		{name: "expect: to continue", sent: post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "expect: to CONTINUE", sent: post + "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "expect: to continue with chunks", sent: post + "Expect: 100-continue\r\n" + chunked + "2\r\n{}\r\n0\r\n\r\n"},
		{name: "expect: to continue with what is too much", sent: post + "Expect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n", cut: true},
		{name: "expect: to continue without body", sent: get + "Expect: 100-continue\r\n\r\n"},
		{name: "expect: to continue in the past", sent: "POST /nothing HTTP/1.0\r\n" + Host + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "expect: miracles", sent: post + "Expect: miracles\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "expect: miracles without body", sent: get + "Expect: miracles\r\n\r\n"},
		{name: "expect: to continue and miracles", sent: post + "Expect: 100-continue, miracles\r\nContent-Length: 2\r\n\r\n{}"},
	}
}

// several are several requests at once.
func several() []request {
	return []request{
		{name: "several: one that is broken after one that is not", sent: get + "\r\n" + get + "X : y\r\n\r\n", vague: true},
		{name: "several: three", sent: repeat(get+"\r\n", 3)},
		{name: "several: ten, with bodies", sent: repeat("POST /nothing HTTP/1.1\r\n"+Host+"Content-Length: 2\r\n\r\n{}", 10)},
		{name: "several: two with chunks", sent: repeat("POST /nothing HTTP/1.1\r\n"+Host+chunked+"2\r\n{}\r\n0\r\n\r\n", 2)},
		{name: "several: nothing after close", sent: get + "Connection: close\r\n\r\n" + inside},
		{name: "several: nothing after CLOSE", sent: get + "Connection: CLOSE\r\n\r\n" + inside},
		{name: "several: nothing after keep-alive and close", sent: get + "Connection: keep-alive, close\r\n\r\n" + inside},
		{name: "several: empty lines between", sent: get + "\r\n\r\n\r\n" + get + "\r\n", vague: true},
	}
}
