// Package shares makes the shares of packet planes follow the speed of the planes.
package shares
