package attack

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"deeplink/shared/testkit"
)

func TestSlowClientsReconnectWhenCutOff(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	c := Hold(ctx, ln.Addr().String(), len(kinds), 0)
	held := make([]net.Conn, 0, 2*len(kinds))
	accept := func() {
		t.Helper()
		for range kinds {
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, conn)
		}
	}
	accept()
	for _, conn := range held { // an unread response, and the end of the connection
		_, _ = io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\n\r\n")
		_ = conn.Close()
	}
	accept()
	if c.Clients.Load() != int64(len(kinds)) || c.Cut.Load() < int64(len(kinds)) {
		t.Errorf("%d clients were cut off %d times, expected each of %d", c.Clients.Load(), c.Cut.Load(), len(kinds))
	}
	leave()
	c.Wait()
	if c.Open.Load() != 0 {
		t.Errorf("%d connections are left", c.Open.Load())
	}
}
