"""Plans an installation: a torch and packages that fit each other and the machine.

`demand` reads what is asked for, `builds` lists the torch that PyTorch publishes, `choice` chooses
one with which all is available, or says what is in the way, and `plan` makes steps of it, which
`fixes` shows, applies, journals and undoes. Which releases fit is knowledge of the tables; which
versions of their requirements are installed is decided by the installer.
"""
