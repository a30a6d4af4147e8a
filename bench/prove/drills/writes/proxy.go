package writes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
)

// proxy is an HTTP proxy that forwards each request to one of several controls. It drops half of the requests before it forwards them, and half
// of the responses after it has received them: the client then sees its connection end.
type proxy struct {
	addr     string
	controls []string
	server   *http.Server
	forward  *http.Transport
	served   chan error
	dropped  atomic.Int64
}

func startProxy(controls []string, connections int) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{addr: listener.Addr().String(), controls: controls, forward: &http.Transport{MaxIdleConnsPerHost: connections}, served: make(chan error, 1)}
	p.server = &http.Server{Handler: p}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

func (p *proxy) close() error {
	err := p.server.Close()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	p.forward.CloseIdleConnections()
	return err
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.drop()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// A request that was forwarded has its effect, also when its client has gone.
	request, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, "http://"+p.controls[rand.IntN(len(p.controls))]+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request.Header = r.Header
	request.GetBody = nil // net/http must not repeat it
	response, err := p.forward.RoundTrip(request)
	if err != nil {
		panic(http.ErrAbortHandler) // the control was killed
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.drop()
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(text) // the client sends the request again if it does not arrive
}

// drop ends the connection of every other request.
func (p *proxy) drop() {
	if rand.IntN(2) == 0 {
		p.dropped.Add(1)
		panic(http.ErrAbortHandler)
	}
}
