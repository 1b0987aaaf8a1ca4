// SPDX-License-Identifier: Apache-2.0
// Nothing: the headers that tests share are compiled beforehand for the program that this file is of.
int main() { return 0; }
