package conn

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHelloGetsAName(t *testing.T) {
	for given, want := range map[string]string{
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n": "*4\r\n$5\r\nhello\r\n$1\r\n3\r\n$7\r\nSETNAME\r\n$5\r\nweb-1\r\n",
		"*5\r\n$5\r\nhello\r\n$1\r\n3\r\n$4\r\nauth\r\n$1\r\nu\r\n$1\r\np\r\n": "*7\r\n$5\r\nhello\r\n$1\r\n3\r\n$4\r\nauth\r\n$1\r\nu\r\n$1\r\np\r\n" +
			"$7\r\nSETNAME\r\n$5\r\nweb-1\r\n",
		"*4\r\n$5\r\nhello\r\n$1\r\n3\r\n$7\r\nsetname\r\n$1\r\nx\r\n": "", // has one
		"*1\r\n$4\r\nping\r\n":                                                      "", // another command
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n*1\r\n$4\r\nping\r\n":                      "", // more than one
		"*5\r\n$5\r\nhello\r\n$1\r\n3\r\n$4\r\nauth\r\n$1\r\nu\r\n$4\r\np\r\nq\r\n": "", // a line break in a password
		"hello": "",
	} {
		assert.Equal(t, want, string(withName([]byte(given), "web-1")), given)
	}
}
