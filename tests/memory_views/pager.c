/* A library with the file name of one that pages GPU memory. It does nothing. */
int pager_is_loaded(void);

int pager_is_loaded(void)
{
    return 1;
}
