package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"deeplink/shared/requestid"
	"deeplink/shared/settings"
)

// answer is what an edge says of a short URL.
type answer struct {
	status   int
	location string
}

// unknown is the answer while there is no link.
var unknown = answer{status: http.StatusNotFound}

// leadingTo is the answer of a link without an app behind it, to a desktop.
func leadingTo(target string) answer { return answer{http.StatusFound, target} }

func (a answer) String() string { return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.location)) }

const (
	// visitTimeout bounds one visit.
	visitTimeout = 2 * time.Second
	// visitHeader is what the header of an answer may take, in bytes. Bodies are not read: all there is to know stands before them.
	visitHeader = 16 << 10
	// visitorAgent is none that edges know, and so counts as a desktop (decisions.md 3).
	visitorAgent = "Deeplink-Canary/1"
)

var (
	errAddress = errors.New("the address is no host and port")
	errNoEdge  = errors.New("whoever answers there is not an edge")
)

// visitor clicks short URLs of the shared host, each on an edge of its choice. It is safe for concurrent use.
type visitor struct {
	http http.Client
	host string
}

func newVisitor(base settings.LinkBase) *visitor {
	return &visitor{host: base.Authority(), http: http.Client{
		Timeout: visitTimeout,
		// A connection for each visit, and no proxy: one that was kept may lead to an edge that is gone.
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: visitHeader},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask clicks the path on the edge at address. The error is that of http.Client, errAddress or errNoEdge.
func (v *visitor) ask(ctx context.Context, address, path, requestID string) (answer, error) {
	if !validAddress(address) {
		return answer{}, errAddress
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return answer{}, err
	}
	request.Host = v.host
	request.Header.Set("User-Agent", visitorAgent)
	request.Header.Set(requestid.Header, requestID)
	response, err := v.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	if response.Header.Get(versionHeader) == "" {
		return answer{}, errNoEdge
	}
	return answer{response.StatusCode, response.Header.Get("Location")}, nil
}

// validAddress reports whether s is a host and a port and nothing else. Requests go where it says, and whoever has the rights of an
// edge can write it.
func validAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.Trim(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:") != "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
