// Package jobflags has the flags that describe a training job, by a model of the generator or by files of other
// programs. The rooms topology and iteration share them.
//
// Layer: above cli, below these rooms. It plans nothing.
package jobflags
