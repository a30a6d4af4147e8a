// Fixed is the least that a server in Go does for a redirect: the same 302 for whatever is asked, by fasthttp or by net/http. It keeps
// the time-outs, the buffers and the Date header of an edge, whose protection is not for free, and nothing else of it.
//
//	fixed fasthttp|nethttp ADDRESS
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
		return fmt.Errorf("usage: fixed fasthttp|nethttp ADDRESS, not %q", arguments)
	}
	ln, err := net.Listen("tcp", arguments[1])
	if err != nil {
		return err
	}
	switch arguments[0] {
	case "fasthttp":
		return serveFasthttp(ln)
	case "nethttp":
		return serveNetHTTP(ln)
	}
	return fmt.Errorf("unknown server %q", arguments[0])
}

// serveFasthttp is tuned: header names are written unchanged, optional headers are omitted, and deadlines move once a second instead of
// three times per request.
func serveFasthttp(ln net.Listener) error {
	name, value := []byte("Location"), []byte(target)
	server := fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusFound)
			ctx.Response.Header.SetCanonical(name, value)
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
