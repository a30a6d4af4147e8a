// Package edgeclient sends requests to one edge, at the address that the edge advertises.
package edgeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"deeplink/shared/requestid"
	"deeplink/shared/settings"
)

const (
	// VersionHeader names the version of the interface on each response of control and of edges.
	VersionHeader = "Deeplink-Version"
	// Version is the version of this control.
	Version = "1"

	// timeout bounds one request.
	timeout = 2 * time.Second
	// MaxHeader bounds the header of a response, in bytes. The client reads no body of a short URL: status and header say everything.
	MaxHeader = 16 << 10
	// userAgent is a user agent that edges do not know, so they respond as to a desktop.
	userAgent = "Deeplink-Canary/1"
)

// Errors of Client in addition to those of http.Client.
var (
	ErrAddress   = errors.New("the address is no host and port")
	ErrNotAnEdge = errors.New("the server at this address is not an edge")
)

// Response is the response of an edge to a short URL.
type Response struct {
	Status   int
	Location string
}

// NotFound is the response to a short URL without a link.
var NotFound = Response{Status: http.StatusNotFound}

// RedirectTo is the response to a desktop for a link that leads to target.
func RedirectTo(target string) Response { return Response{http.StatusFound, target} }

func (a Response) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Location))
}

// Client requests short URLs of the shared host from edges of its caller's choice. It is safe for concurrent use.
type Client struct {
	HTTP http.Client
	host string
}

// New returns a client for short URLs that begin with base.
func New(base settings.LinkBase) *Client {
	return &Client{host: base.Authority(), HTTP: http.Client{
		Timeout: timeout,
		// Each request has a new connection and no proxy: an old connection may lead to an edge that has ended.
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: MaxHeader},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Get requests the path from the edge at address. The error is that of http.Client, ErrAddress or ErrNotAnEdge.
func (v *Client) Get(ctx context.Context, address, path, requestID string) (Response, error) {
	response, err := v.do(ctx, address, path, requestID)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	if response.Header.Get(VersionHeader) == "" {
		return Response{}, ErrNotAnEdge
	}
	return Response{response.StatusCode, response.Header.Get("Location")}, nil
}

// Version returns the version of the interface that the edge at address has.
func (v *Client) Version(ctx context.Context, address string) (string, error) {
	response, err := v.do(ctx, address, "/healthz", "")
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without the URL, which the caller has
		}
		return "", err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, MaxHeader)
	if response.Header.Get(VersionHeader) == "" {
		return "", ErrNotAnEdge
	}
	return response.Header.Get(VersionHeader), nil
}

func (v *Client) do(ctx context.Context, address, path, requestID string) (*http.Response, error) {
	if !validAddress(address) {
		return nil, ErrAddress
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Host = v.host
	request.Header.Set("User-Agent", userAgent)
	if requestID != "" {
		request.Header.Set(requestid.Header, requestID)
	}
	return v.HTTP.Do(request)
}

// validAddress reports whether s is a host and a port and nothing else. Control connects to this address, and anyone with the database
// rights of an edge can write it.
func validAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.Trim(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:") != "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
