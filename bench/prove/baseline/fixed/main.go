// Fixed is the least that a server in Go does for a redirect: the same 302 for every request, with fasthttp or net/http. It has the
// timeouts, the buffers and the Date header of an edge, whose protection costs time, and nothing else of it. With fasthttp-headers,
// each response also has the bytes of an edge's headers.
//
//	fixed fasthttp|fasthttp-headers|nethttp ADDRESS
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/valyala/fasthttp"
)

// The settings of an edge (edge/server.go).
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
	idleTimeout  = time.Minute
	buffer       = 8 << 10
)

const target = "https://shop.example.com/sale/spring-linen-jacket-000001?utm_source=newsletter&utm_medium=email"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fixed:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: fixed fasthttp|fasthttp-headers|nethttp ADDRESS, not %q", arguments)
	}
	ln, err := net.Listen("tcp", arguments[1])
	if err != nil {
		return err
	}
	switch arguments[0] {
	case "fasthttp":
		return serveFasthttp(ln, nil)
	case "fasthttp-headers":
		return serveFasthttp(ln, []byte(edgeHeaders))
	case "nethttp":
		return serveNetHTTP(ln)
	}
	return fmt.Errorf("unknown server %q", arguments[0])
}

// edgeHeaders are those of an edge (edge/respond.go), up to the value of the last one, with a request id that never changes.
const (
	edgeHeaders = "Referrer-Policy: strict-origin-when-cross-origin\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"Vary: User-Agent, Sec-CH-UA-Platform\r\n" +
		"Cache-Control: private, no-store\r\n" +
		"Deeplink-Version: 1\r\n" +
		"X-Request-Id"
	requestID = "5c5a6e0e-7d5b-4d3a-9d39-0f6c2ad3d0a1"
)

// serveFasthttp is tuned: header names are written unchanged, optional headers are omitted, and a busy connection moves its deadlines
// once a second instead of three times per request. headers are more header bytes, up to the value of the last header; nil: none.
func serveFasthttp(ln net.Listener, headers []byte) error {
	name, value, id := []byte("Location"), []byte(target), []byte(requestID)
	server := fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusFound)
			ctx.Response.Header.SetCanonical(name, value)
			if headers != nil {
				ctx.Response.Header.SetCanonical(headers, id)
			}
		},
		NoDefaultServerHeader: true, NoDefaultContentType: true,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ReadBufferSize: buffer, WriteBufferSize: buffer,
	}
	return server.Serve(listener{ln})
}

func serveNetHTTP(ln net.Listener) error {
	value := []string{target}
	server := http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = value
			w.WriteHeader(http.StatusFound)
		}),
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: buffer,
	}
	return server.Serve(ln)
}
