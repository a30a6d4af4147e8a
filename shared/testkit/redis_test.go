package testkit_test

import (
	"net"
	"testing"

	"deeplink/shared/testkit"
)

func TestServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var address string
	t.Run("user", func(t *testing.T) {
		one, other := testkit.NewRedis(t), testkit.NewRedis(t)
		if one.Addr() == other.Addr() {
			t.Errorf("two servers on %s", one.Addr())
		}
		address = one.Addr()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Errorf("a process still listens on %s", address)
	}
}
