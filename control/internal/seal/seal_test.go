package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var (
	oldKey = strings.Repeat("0a", keySize)
	newKey = strings.Repeat("0B", keySize)
)

func parse(t *testing.T, list string) *Keys {
	t.Helper()
	k, err := ParseKeys(list)
	if err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	return k
}

func TestSealedValueOpensOnlyInItsPlaceWithItsKey(t *testing.T) {
	t.Parallel()
	old := parse(t, oldKey)
	value := []byte("a refresh token")
	sealed := old.Seal(value, "id", "column")
	if bytes.Contains(sealed, value) {
		t.Fatal("the sealed value contains the value")
	}
	if bytes.Equal(sealed, old.Seal(value, "id", "column")) {
		t.Error("the same value was sealed twice with the same nonce")
	}
	for _, list := range []string{oldKey, oldKey + "," + newKey, newKey + "," + oldKey} {
		k := parse(t, list)
		if opened, err := k.Open(sealed, "id", "column"); err != nil || !bytes.Equal(opened, value) || !k.Knows(sealed[:idSize]) {
			t.Errorf("with %s: %q, %v", list, opened, err)
		}
	}
	for _, place := range [][2]string{{"other", "column"}, {"id", "other"}, {"idc", "olumn"}, {"", ""}} {
		if _, err := old.Open(sealed, place[0], place[1]); !errors.Is(err, ErrDamaged) {
			t.Errorf("opened in %q: %v", place, err)
		}
	}
	for i := range sealed {
		damaged := bytes.Clone(sealed)
		damaged[i] ^= 1
		expected := ErrDamaged
		if i < idSize {
			expected = ErrUnknownKey
		}
		if _, err := old.Open(damaged, "id", "column"); !errors.Is(err, expected) {
			t.Errorf("byte %d changed: %v, expected %v", i, err, expected)
		}
		if _, err := old.Open(sealed[:i], "id", "column"); err == nil {
			t.Errorf("the first %d bytes were opened", i)
		}
	}
	if after := parse(t, newKey); after.Knows(sealed) {
		t.Error("a key knows what another one sealed")
	}
	var none *Keys
	if _, err := none.Open(sealed, "id", "column"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without keys: %v", err)
	}
}

func TestRotationSealsWithTheFirstKey(t *testing.T) {
	t.Parallel()
	sealed := parse(t, newKey+","+oldKey).Seal([]byte("v"), "i", "c")
	if !parse(t, newKey).Knows(sealed) || parse(t, oldKey).Knows(sealed) {
		t.Error("the first key did not seal")
	}
}

func TestMalformedKeyListsAreRefused(t *testing.T) {
	t.Parallel()
	var nine []string
	for i := range 9 {
		nine = append(nine, strings.Repeat(string("123456789"[i]), 64))
	}
	parse(t, strings.Join(nine[:8], ","))
	for _, list := range []string{"", ",", oldKey + ",", oldKey[1:], oldKey + "0a", strings.Repeat("zz", keySize), oldKey + "," + oldKey,
		oldKey + "," + strings.ToUpper(oldKey), " " + oldKey, strings.Join(nine, ",")} {
		if k, err := ParseKeys(list); !errors.Is(err, ErrKeys) || k != nil {
			t.Errorf("%q: %v, expected ErrKeys", list, err)
		}
	}
}
