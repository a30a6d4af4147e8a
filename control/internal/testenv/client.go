package testenv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
)

// Client sends requests to a control with an API key or a session token.
type Client struct {
	T    testing.TB
	Base string
	Key  string
	HTTP *http.Client
	// From returns where a trusted proxy says that a request comes from. Nil: no proxy.
	From func() string
}

// Reply is a response with its whole body.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Message returns the message of an error envelope.
func (r Reply) Message() string {
	var e struct{ Message string }
	_ = json.Unmarshal(r.Body, &e)
	return e.Message
}

// Code returns the code of an error envelope.
func (r Reply) Code() string {
	var e struct{ Code string }
	_ = json.Unmarshal(r.Body, &e)
	return e.Code
}

// Fields returns the names of the fields in the details of an error envelope, separated by commas.
func (r Reply) Fields() string {
	var e struct{ Details []struct{ Field string } }
	_ = json.Unmarshal(r.Body, &e)
	var names []string
	for _, detail := range e.Details {
		names = append(names, detail.Field)
	}
	return strings.Join(names, ",")
}

// String returns the reply for the message of a failed test.
func (r Reply) String() string {
	return fmt.Sprintf("%d %v\n%.2000s", r.Status, r.Header, r.Body)
}

// DecodeReply reads the body as JSON into a T, which must have a field for every member.
func DecodeReply[T any](t testing.TB, r Reply) T {
	t.Helper()
	var value T
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v in %s", err, r)
	}
	return value
}

// Do sends a request. A body is sent as JSON. headers are pairs of name and value; an empty value removes the header.
func (c *Client) Do(method, path, body string, headers ...string) Reply {
	c.T.Helper()
	r, err := c.Try(method, path, body, headers...)
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// Try is Do for a request that may fail without a response.
func (c *Client) Try(method, path, body string, headers ...string) (Reply, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request, err := http.NewRequest(method, c.Base+path, content)
	if err != nil {
		return Reply{}, err
	}
	if c.Key != "" {
		request.Header.Set("Authorization", "Bearer "+c.Key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.From != nil {
		request.Header.Set(clientip.Header, c.From())
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			request.Header.Del(headers[i])
		} else {
			request.Header.Add(headers[i], headers[i+1])
		}
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return Reply{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return Reply{response.StatusCode, response.Header, answer}, err
}

// CreateLink creates a link and returns it.
func (c *Client) CreateLink(body string) catalog.Link {
	c.T.Helper()
	r := c.Do("POST", "/links", body)
	if r.Status != http.StatusCreated {
		c.T.Fatalf("POST /links %s: %s, expected 201", body, r)
	}
	return DecodeReply[catalog.Link](c.T, r)
}
